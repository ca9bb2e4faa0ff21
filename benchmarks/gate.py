"""How long the gate takes: twenty jobs from GPT-2 to 70 billion parameters, cold and warm, on two cores.

Every job fits: one that does not also looks for changes that would make it fit, a minute more at most. Cold, nothing is
known of any job. Warm, nothing has changed: the target is 2 s for all twenty. Between the two, one job of the twenty is
changed, as a pull request does.

    python benchmarks/gate.py [--rounds 7]        needs the extra [hf]; the table is in results/gate.txt
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "gate.txt"
CORES = 2
TARGET_SECONDS = 2.0
GIB = 1 << 30
CHANGED = "gpt2"
"""The job whose batch size one run changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job of the project."""

    name: str
    """And its preset, where that is not said."""
    gpu: str
    """Where it runs."""
    preset: str = ""
    """What is trained."""
    parallel: str = "none"
    """Over how many."""
    batch_size: int = 1
    """On each rank."""
    more: str = ""
    """Further keys."""


FULL = 'checkpoint = "full"\n'
JOBS = (
    Job(name="gpt2", gpu="l4", batch_size=8),
    Job(name="gpt2-medium", gpu="l4", batch_size=4),
    Job(name="gpt2-xl", gpu="a100-40g"),
    Job(name="bert-large", gpu="a10g", batch_size=8),
    Job(name="vit", preset="vit-l-16", gpu="a10g", batch_size=16),
    Job(name="sdxl-unet", gpu="h100-80g"),
    Job(name="tinyllama-1.1b", gpu="a100-40g", batch_size=2),
    Job(name="llama-3.2-1b", gpu="a100-40g"),
    Job(name="llama-3.2-3b", gpu="h100-80g", more=FULL),
    Job(name="llama-3.1-8b", gpu="b200"),
    Job(name="llama-3.1-8b, fsdp", preset="llama-3.1-8b", gpu="h100-80g", parallel="fsdp=8", batch_size=2),
    Job(name="llama-3.1-8b, fsdp x tp", preset="llama-3.1-8b", gpu="h100-80g", parallel="fsdp=8,tp=2", batch_size=4),
    Job(name="mistral-7b, fsdp", preset="mistral-7b-v0.3", gpu="a100-80g", parallel="fsdp=8", batch_size=2),
    Job(name="gemma-2-9b, fsdp", preset="gemma-2-9b", gpu="h100-80g", parallel="fsdp=8", more=FULL),
    Job(name="llama-2-13b, fsdp", preset="llama-2-13b", gpu="a100-80g", parallel="fsdp=16"),
    Job(name="gemma-2-27b, fsdp", preset="gemma-2-27b", gpu="h100-80g", parallel="fsdp=32", more=FULL),
    Job(name="mixtral-8x7b, fsdp", preset="mixtral-8x7b", gpu="b200", parallel="fsdp=32", more=FULL),
    Job(name="llama-2-70b, fsdp", preset="llama-2-70b", gpu="h100-80g", parallel="fsdp=64", more=FULL),
    Job(name="llama-3.1-70b, fsdp", preset="llama-3.1-70b", gpu="h200", parallel="fsdp=64", more=FULL),
    Job(name="llama-3.1-70b, fsdp x tp", preset="llama-3.1-70b", gpu="h100-80g", parallel="fsdp=16,tp=8", more=FULL),
)


def project(jobs: tuple[Job, ...] = JOBS, changed: str = "") -> str:
    """A project file; the batch of one job can be another."""
    return "\n".join(
        f'[[job]]\nname = "{job.name}"\ntarget = "preset:{job.preset or job.name}"\ngpus = ["{job.gpu}"]\n'
        f'parallel = "{job.parallel}"\nprecision = "bf16-mixed"\n'
        f"batch-size = {job.batch_size + (job.name == changed)}\n{job.more}"
        for job in jobs
    )


def gate(folder: Path, *formats: str) -> tuple[float, float, str]:
    """Wall and CPU seconds of one run, and what it printed."""
    words = [sys.executable, "-m", "memplan", "gate", "--cache-dir", "cache", "-f", "text"]
    words += [word for name in formats for word in ("-f", f"{name}=gate.{name}")]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr or done.stdout)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def told(name: str, runs: Sequence[tuple[float, float, str]]) -> str:
    """A line of figures of several runs of one kind."""
    walls, cpus = [run[0] for run in runs], [run[1] for run in runs]
    return f"{name:<34}{statistics.median(walls):>9.2f}{max(walls):>9.2f}{statistics.median(cpus):>9.2f}{len(runs):>6}"


def line(row: Mapping[str, Any], job: Job) -> str:
    """One job of the table."""
    estimate = row["estimate"]
    peak, trace = estimate["peak"]["device_bytes"] / GIB, estimate["timings"]["trace_seconds"]
    batch = estimate["options"]["batch_size"]
    return f"{job.name:<26}{job.gpu:<10}{batch:>6}{estimate['verdict']:>9}{peak:>9.2f}{trace:>9.2f}"


def main() -> int:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="warm runs")
    rounds = parser.parse_args().rounds
    allowed = sorted(os.sched_getaffinity(0))[:CORES]
    os.sched_setaffinity(0, allowed)  # Children keep to them.
    versions = f"torch {metadata.version('torch')}, transformers {metadata.version('transformers')}"
    load = f"load of the machine of {os.cpu_count()} cores before: {os.getloadavg()[0]:.1f}"
    lines = [f"{platform.machine()}, {len(allowed)} cores, Python {platform.python_version()}, {versions}; {load}"]
    with tempfile.TemporaryDirectory(prefix="memplan-gate-") as scratch:
        folder = Path(scratch)
        (folder / "memplan.toml").write_text(project())
        cold = gate(folder, "json")
        result = json.loads((folder / "gate.json").read_text())
        lines += [f"{'job':<26}{'gpu':<10}{'batch':>6}{'verdict':>9}{'GiB':>9}{'trace s':>9}"]
        lines += [line(row, job) for row, job in zip(result["rows"], JOBS, strict=True)]
        warm = [gate(folder) for _ in range(rounds)]
        # Not html: its timelines are made with the trace, so that a cache without them would be traced anew.
        every = [gate(folder, "json", "markdown", "sarif", "junit") for _ in range(rounds)]
        unchanged = f"{len(JOBS)} of {len(JOBS)} unchanged"
        assert all(unchanged in run[2] for run in [*warm, *every])
        (folder / "memplan.toml").write_text(project(changed=CHANGED))
        one = gate(folder)
    lines += [
        "",
        f"{'seconds':<34}{'median':>9}{'worst':>9}{'CPU':>9}{'runs':>6}",
        told(f"cold, {len(JOBS)} jobs", [cold]),
        told("one job changed", [one]),
        told(f"warm (target {TARGET_SECONDS:g} s)", warm),
        told("warm, with four files of reports", every),
        f"load after: {os.getloadavg()[0]:.1f}",
    ]
    print("\n".join(lines))
    RESULTS.write_text("\n".join(lines) + "\n")
    return int(statistics.median(run[0] for run in warm) > TARGET_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
