"""Other estimators beside memplan on the same jobs: what each predicts, and its time as a multiple of memplan's.

    python benchmarks/peers.py [--zoo NAME …] [--skip-zoo] [--skip-snapshots]

The models of ``cpu_truth`` are held against a real run on the CPU; the programs of ``published.snapshots`` against the
peak of requested bytes in real CUDA snapshots (``MEMPLAN_DATA``). Peers: ``torch.distributed._tools.mem_tracker``, on
fake tensors as its documentation shows, and torchinfo's "Estimated Total Size" (``pip install torchinfo==1.8.0``). A
tool that fails is listed with what it raised. Each runs in a process of its own; times leave out imports.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cpu_truth

HERE = Path(__file__).parent
TOOLS = ("memplan", "memtracker", "torchinfo")
TIMEOUT = 900
"""Seconds for one tool on one job."""

Answer = dict[str, Any]
"""``peak`` in bytes and ``seconds``, or ``error``."""


def ask(tool: str, job: dict[str, Any]) -> Answer:
    """Let a tool predict a job in a fresh process."""
    command = [sys.executable, str(HERE / "peers_child.py"), tool, json.dumps(job)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=TIMEOUT, check=False, cwd=HERE
        )
    except subprocess.TimeoutExpired:
        return {"error": f"longer than {TIMEOUT} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["failed"])[-1][:120]}
    answer: Answer = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def compare(jobs: Sequence[tuple[str, int, dict[str, Any]]]) -> Iterator[str]:
    """A line per job, then one per tool.

    Args:
        jobs: Name, true peak in bytes, and what the child is told.
    """
    yield f"{'job':<40}{'true peak':>16}" + "".join(f"{tool + ' %':>14}{'time':>8}" for tool in TOOLS)
    errors: dict[str, list[float]] = {tool: [] for tool in TOOLS}
    times: dict[str, list[float]] = {tool: [] for tool in TOOLS}
    failures: list[str] = []
    for name, truth, job in jobs:
        answers = {tool: ask(tool, job) for tool in TOOLS}
        line = f"{name:<40}{truth:>16,}"
        for tool, answer in answers.items():
            if "error" in answer:
                failures.append(f"{tool} on {name}: {answer['error']}")
                line += f"{'failed':>14}{'':>8}"
                continue
            error = 100 * (answer["peak"] / truth - 1)
            ratio = answer["seconds"] / answers["memplan"].get("seconds", float("nan"))
            errors[tool].append(error)
            times[tool].append(ratio)
            line += f"{error:>+14.3f}{ratio:>7.1f}x"
        yield line
    for tool in TOOLS:
        if errors[tool]:
            yield (
                f"{tool}: {len(errors[tool])} of {len(jobs)}, median {statistics.median(map(abs, errors[tool])):.3f} %"
                f", worst {max(errors[tool], key=abs):+.1f} %, {statistics.median(times[tool]):.1f}x memplan's time"
            )
        else:
            yield f"{tool}: 0 of {len(jobs)}"
    yield from failures


def zoo_jobs(names: Sequence[str] | None) -> list[tuple[str, int, dict[str, Any]]]:
    """The models of ``cpu_truth``, each run for real; those whose real run fails are left out."""
    found = []
    for case in (*cpu_truth.CASES, *cpu_truth.BLIND):
        if names and case.name not in names:
            continue
        real = cpu_truth.measured(case)
        if "peak" in real:
            found.append((case.name, int(real["peak"]), {"kind": "zoo"} | cpu_truth._options(case)))  # noqa: SLF001
    return found


def snapshot_jobs() -> list[tuple[str, int, dict[str, Any]]]:
    """The programs of published snapshots, each once; none without the data."""
    from published.snapshots import BEGINNING, cases

    found = {}
    for case in cases()[0]:
        name = case.id.removeprefix(BEGINNING).rpartition("-")[0]
        # A name that ends so is the same program, run again.
        if case.metric == "requested" and not name.endswith("_"):
            found[name] = (name, case.measured, {"kind": "snapshot", "name": name})
    return list(found.values())


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", nargs="+", help="these models alone")
    parser.add_argument("--skip-zoo", action="store_true")
    parser.add_argument("--skip-snapshots", action="store_true")
    options = parser.parse_args()
    if not options.skip_zoo:
        print("CPU: against a real run")
        for line in compare(zoo_jobs(options.zoo)):
            print(line, flush=True)
    if not options.skip_snapshots:
        print("CUDA: requested bytes of published snapshots")
        for line in compare(snapshot_jobs()):
            print(line, flush=True)


if __name__ == "__main__":
    main()
