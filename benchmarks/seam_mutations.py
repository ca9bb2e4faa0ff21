"""What a release of torch that renames something would do to answers: every replaced name taken away in turn.

For each job, each attribute and kernel that its trace replaces is hidden from memplan alone, as if torch called it
otherwise, and the job is estimated again. Loud: an error that names it. No effect: the same figures. **Silent: other
figures.** Usage::

    python benchmarks/seam_mutations.py [JOB ...] [--only PART]
"""

import argparse
import os
import pickle
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from memplan.errors import MemplanError
from memplan.hardware.catalog import load_profile
from memplan.job.adapters import Lora
from memplan.job.parallel import parse_parallel
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.local import estimate_here
from memplan.seam import dispatcher, replace

HERE = Path(__file__).parent / "mutated"

Outcome = Literal["loud", "no effect", "SILENT"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One row."""

    name: str
    target: str
    options: dict[str, Any]

    def spec(self) -> JobSpec:
        """The job as memplan knows it."""
        return JobSpec(target=FileTarget(path=HERE / f"{self.target}.py"), batch_size=8, **self.options)


JOBS = (
    Job(name="autocast", target="gpt", options={"precision": "bf16-mixed", "clip_grad_norm": 1.0}),
    Job(name="fsdp2", target="gpt", options={"precision": "bf16", "parallel": parse_parallel("fsdp=4")}),
    Job(name="tp", target="llama", options={"precision": "bf16", "parallel": parse_parallel("tp=2")}),
    Job(name="lstm", target="recurrent", options={}),
    Job(name="lora", target="llama", options={"precision": "bf16", "quantize": "nf4", "lora": Lora(rank=8)}),
    Job(name="compiled", target="gpt", options={"precision": "bf16", "compile": "inductor"}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an estimate came to."""

    figures: tuple[Any, ...]
    """Peaks and verdict; empty where there were none."""
    error: str
    """Why there were none."""


def estimated(job: Job) -> Result:
    """One estimate in a process of its own, so that nothing of it remains."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(_here(job), pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(answer) if answer else Result(figures=(), error="the process died")


def _here(job: Job) -> Result:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        (answer,) = estimate_here(job.spec(), [load_profile("h100-80g")], advice=False)
    except MemplanError as error:
        return Result(figures=(), error=str(error))
    except Exception as error:  # noqa: BLE001 - whatever stops it is loud
        return Result(figures=(), error=f"{type(error).__name__}: {error}")
    peak = answer.peak
    figures = (peak.requested_bytes, peak.allocated_bytes, peak.reserved_bytes, peak.device_bytes, answer.verdict)
    return Result(figures=figures, error="")


def replaced_by(job: Job) -> list[str]:
    """Everything that a job's trace replaces, by the path in the table."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        seen: dict[str, None] = {}
        has, exists = replace.has, dispatcher.exists

        def noting(owner: object, name: str) -> bool:
            there = has(owner, name)
            if there:
                seen[_path(owner, name)] = None
            return there

        def noting_ops(name: str) -> bool:
            there = exists(name)
            if there:
                seen[f"aten::{name}"] = None
            return there

        replace.has, dispatcher.exists = noting, noting_ops
        _here(job)
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(list(seen), pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found: list[str] = pickle.loads(pipe.read())
    os.wait()
    return found


def _path(owner: object, name: str) -> str:
    module = f"{owner.__module__}." if isinstance(owner, type) else ""
    return f"{module}{getattr(owner, '__qualname__', getattr(owner, '__name__', type(owner).__name__))}.{name}"


@contextmanager
def without(path: str) -> Iterator[None]:
    """Hide a name from memplan, and from nobody else."""
    has, exists = replace.has, dispatcher.exists
    replace.has = lambda owner, name: _path(owner, name) != path and has(owner, name)
    dispatcher.exists = lambda name: f"aten::{name}" != path and exists(name)
    try:
        yield
    finally:
        replace.has, dispatcher.exists = has, exists


def judged(before: Result, after: Result) -> Outcome:
    """What it did."""
    if not after.figures:
        return "loud"
    return "no effect" if after.figures == before.figures else "SILENT"


def run(job: Job, only: str) -> Counter[Outcome]:
    """Take every name away in turn, and print what is not loud."""
    before = estimated(job)
    if not before.figures:
        print(f"{job.name}: no figures to begin with: {before.error}")
        return Counter()
    counts: Counter[Outcome] = Counter()
    for path in [path for path in replaced_by(job) if only in path]:
        with without(path):
            after = estimated(job)
        outcome = judged(before, after)
        counts[outcome] += 1
        if outcome == "SILENT":
            print(f"  {job.name}: without {path}: {before.figures} becomes {after.figures}", flush=True)
    print(
        f"{job.name:10} {sum(counts.values()):8} {counts['loud']:6} {counts['no effect']:10} {counts['SILENT']:7}",
        flush=True,
    )
    return counts


def main(arguments: Sequence[str]) -> int:
    """Print the table; exit 1 if anything was silent."""
    parser = argparse.ArgumentParser()
    parser.add_argument("jobs", nargs="*")
    parser.add_argument("--only", default="", help="names with this part alone")
    options = parser.parse_args(arguments)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}, load {load}")
    print(f"{'job':10} {'targets':>8} {'loud':>6} {'no effect':>10} {'silent':>7}")
    counts: Counter[Outcome] = Counter()
    for job in JOBS:
        if not options.jobs or job.name in options.jobs:
            counts += run(job, options.only)
    print(f"{'all':10} {sum(counts.values()):8} {counts['loud']:6} {counts['no effect']:10} {counts['SILENT']:7}")
    return 1 if counts["SILENT"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
