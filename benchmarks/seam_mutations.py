"""What a release of torch that renames something would do to answers: every name taken away in turn.

For each job, each attribute and kernel that its trace replaces, and each private name that it uses, is hidden from
memplan alone, as if torch called it otherwise, and the job is estimated again. Loud: an error that names it. No effect:
the same figures. **Silent: other figures.** Usage::

    python benchmarks/seam_mutations.py [JOB ...] [--only PATTERN] [--every N]
"""

import argparse
import contextlib
import importlib
import os
import pickle
import platform
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch

from memplan.errors import MemplanError
from memplan.hardware.catalog import load_profile
from memplan.job.adapters import Lora
from memplan.job.parallel import parse_parallel
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.local import estimate_here
from memplan.seam import dispatcher, find

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


def in_child(work: Callable[[], Any]) -> Any:
    """What some work comes to in a process of its own, of which nothing else remains; None: the process died."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(work(), pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(answer) if answer else None


def estimated(job: Job) -> Result:
    """One estimate."""
    return in_child(lambda: _here(job)) or Result(figures=(), error="the process died")


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


def rested_on_by(job: Job) -> tuple[list[str], list[str]]:
    """Names that a job's trace looks up, and modules that it imports. For a process of its own."""
    seen: dict[str, None] = {}
    has, exists = find.has, dispatcher.exists

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

    find.has, dispatcher.exists = noting, noting_ops
    _here(job)
    return list(seen), [name for name in sys.modules if name.partition(".")[0] in _IMPORTED]


_IMPORTED = ("memplan", "torch", "transformers", "peft")
"""Libraries that are imported once for all estimates but those without a name that imports look up."""


def mutations(job: Job) -> Iterator[str]:
    """Names to take away: first those that imports alone look up, then, all imported, those that the job looks up."""
    cold, modules = in_child(lambda: rested_on_by(job))
    warm, _ = in_child(lambda: (import_all(modules), rested_on_by(job))[1])
    yield from sorted(set(cold) - set(warm))
    import_all(modules)
    yield from warm


def import_all(modules: Sequence[str]) -> None:
    """Import what a job has imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def _path(owner: object, name: str) -> str:
    module = f"{owner.__module__}." if isinstance(owner, type) else ""
    return f"{module}{getattr(owner, '__qualname__', getattr(owner, '__name__', type(owner).__name__))}.{name}"


@contextmanager
def without(path: str) -> Iterator[None]:
    """Hide a name from memplan, and from nobody else."""
    has, exists = find.has, dispatcher.exists
    find.has = lambda owner, name: _path(owner, name) != path and has(owner, name)
    dispatcher.exists = lambda name: f"aten::{name}" != path and exists(name)
    try:
        yield
    finally:
        find.has, dispatcher.exists = has, exists


def judged(before: Result, after: Result) -> Outcome:
    """What it did."""
    if not after.figures:
        return "loud"
    return "no effect" if after.figures == before.figures else "SILENT"


def run(job: Job, only: str = "", every: int = 1) -> Counter[Outcome]:
    """Take every name away in turn, or each of so many, and print what is silent. For a process of its own."""
    before = estimated(job)
    if not before.figures:
        print(f"{job.name}: no figures to begin with: {before.error}")
        return Counter()
    counts: Counter[Outcome] = Counter()
    for path in islice((path for path in mutations(job) if re.search(only, path)), 0, None, every):
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
    parser.add_argument("--only", default="", help="names in which this regular expression is found, alone")
    parser.add_argument("--every", type=int, default=1, help="a sample: each of so many names")
    options = parser.parse_args(arguments)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}, load {load}")
    print(f"{'job':10} {'targets':>8} {'loud':>6} {'no effect':>10} {'silent':>7}")
    counts: Counter[Outcome] = Counter()
    for job in JOBS:
        if not options.jobs or job.name in options.jobs:
            counts += in_child(partial(run, job, options.only, options.every))
    print(f"{'all':10} {sum(counts.values()):8} {counts['loud']:6} {counts['no effect']:10} {counts['SILENT']:7}")
    return 1 if counts["SILENT"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
