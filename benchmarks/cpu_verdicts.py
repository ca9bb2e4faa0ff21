"""What every aten op takes on the CPU beside its results: real beside predicted, one line for each op.

Runs the samples of torch's operator databases (forward, backward, in place, over lists), every optimizer, and the calls
of ``cpu_direct`` for real under a dispatch mode, and holds the allocator events of every op that it sees against
memplan's prediction for the same call: results, and scratch by the table; where it cannot run on fake tensors, against
the results alone. An op whose real peak differs is printed with its worst call.
``memplan/tracing/scratch/cpu_plain.py`` lists those that never differ; ``results/cpu_verdicts.csv`` holds what was
counted. Usage::

    python benchmarks/cpu_verdicts.py [--dtype float32] [--side 8] [--part 1/4] [--all] [--csv FILE] [NAME ...]
"""

import argparse
import contextlib
import csv
import logging
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import torch
from torch.testing._internal import common_methods_invocations as database

sys.path.insert(0, str(Path(__file__).parents[1]))

import cpu_direct
import cpu_ops
from cpu_ops import FLOOR, TOLERATED, Sample
from cpu_scratch_watch import Watch, Watched, attribute

from memplan.runtime.profile.kineto import Profiler

CHUNK = 60
LISTS = tuple(
    info
    for kind in ("unary", "binary", "pointwise", "reduce", "other")
    for info in getattr(database, f"foreach_{kind}_op_db", ())
)
"""Operators over lists."""


def found(names: list[str], dtype: torch.dtype, most: int, part: tuple[int, int]) -> Iterator[Sample]:
    """All calls that are made in one type; one part of several.

    Args:
        names: Operators; all without.
        dtype: Of the samples.
        most: Samples of one operator.
        part: Which of how many parts, counted from 1.
    """
    place, parts = part
    infos = [*database.op_db, *LISTS][place - 1 :: parts]
    ways = (cpu_ops.samples(names, dtype, most, infos, in_place=in_place) for in_place in (False, True))
    direct = (each for each in cpu_direct.samples(dtype) if place == 1 and (not names or each.name in names))
    return chain(*ways, direct)


def watched(chunk: tuple[Sample, ...]) -> list[Watched]:
    """Every op of some samples, real and predicted."""
    watch, profiler = Watch(), Profiler()
    for sample in chunk:
        # Once before, for what the first call of a kernel keeps.
        with contextlib.suppress(Exception):
            cpu_ops.backward(sample, sample.arguments, cpu_ops.forward(sample, sample.arguments))
    profiler.start()
    for sample in chunk:
        with contextlib.suppress(Exception), watch:
            cpu_ops.backward(sample, sample.arguments, cpu_ops.forward(sample, sample.arguments))
    attribute(profiler.finish(lambda _: False).events, watch.calls)
    return [call for call in watch.calls if call.ended]


def expected(call: Watched) -> int | None:
    """The predicted peak; of what cannot run on fakes and has no rule, its results."""
    return call.made if call.predicted is None and not verdict(call.name) else call.predicted


def differs(call: Watched) -> bool:
    """Is the real peak another than the predicted one?"""
    guess = expected(call)
    return guess is not None and abs(call.real - guess) > max(FLOOR, TOLERATED * call.real)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="operators of the database; all without")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--most", type=int, default=1000, help="samples of one operator")
    parser.add_argument("--side", type=int, help="length of a side of most samples' tensors, for the database's own 5")
    parser.add_argument("--part", default="1/1", help="which of how many parts")
    parser.add_argument("--csv", type=Path, help="append what was counted")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no chunk later")
    parser.add_argument("--all", action="store_true", help="print ops that do not differ, too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.side:
        cpu_ops.enlarge(options.side)
    calls: dict[str, list[Watched]] = defaultdict(list)
    place, _, parts = options.part.partition("/")
    samples = found(options.names, getattr(torch, options.dtype), options.most, (int(place), int(parts)))
    end = time.monotonic() + options.seconds
    while chunk := tuple(islice(samples, CHUNK)):
        for call in watched(chunk):
            calls[call.name].append(call)
        if time.monotonic() > end:
            print(f"stopped before {chunk[-1].name}")
            break
    show(calls, everything=options.all)
    if options.csv:
        with options.csv.open("a") as file:
            lines = csv.writer(file, lineterminator="\n")
            for name, seen in sorted(calls.items()):
                known = sum(expected(call) is not None for call in seen)
                lines.writerow((name, options.dtype, known, sum(map(differs, seen))))


def show(calls: dict[str, list[Watched]], *, everything: bool) -> None:
    """Print a line for each op, and the worst of the calls that differ."""
    for name, seen in sorted(calls.items()):
        wrong = [call for call in seen if differs(call)]
        unknown = sum(expected(call) is None for call in seen)
        if wrong or everything:
            print(f"{name:<60}{verdict(name):<14}{len(seen):>6} calls {len(wrong):>6} differ {unknown:>6} not on fakes")
        for call in sorted(wrong, key=lambda each: -abs(each.real - (expected(each) or 0)))[:1]:
            print(f"    real {call.real} expected {expected(call)} {call.arguments[:300]} -> {call.story[:300]}")


def verdict(name: str) -> str:
    """What memplan holds of an op."""
    from memplan.tracing.scratch.cpu_table import CPU_RULES

    return "ruled" if name in CPU_RULES else ""


if __name__ == "__main__":
    main()
