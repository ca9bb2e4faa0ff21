"""What every aten op takes on the CPU beside its results: real beside predicted, one line for each op.

Runs the samples of torch's operator database (forward and backward) for real under a dispatch mode, and holds the
allocator events of every op that it sees against memplan's prediction for the same call: results, and scratch by the
table. Ops are *ruled*, *plain* (known to take nothing) or *not examined*; an op whose real peak differs is printed with
its worst call. The lists of ``memplan/trace/scratch/cpu_plain.py`` were made with it. Usage::

    python benchmarks/cpu_verdicts.py [--dtype float32] [--side 16] [--all] [NAME ...]
"""

import argparse
import contextlib
import logging
import sys
import warnings
from collections import defaultdict
from itertools import islice
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import cpu_ops
from cpu_ops import FLOOR, TOLERATED, Sample
from cpu_scratch_watch import Watch, Watched, attribute

from memplan.runtime.profile.kineto import Profiler

CHUNK = 60


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
    return watch.calls


def differs(call: Watched) -> bool:
    """Is the real peak another than the predicted one?"""
    return call.predicted is not None and abs(call.real - call.predicted) > max(FLOOR, TOLERATED * call.real)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="operators of the database; all without")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--most", type=int, default=1000, help="samples of one operator")
    parser.add_argument("--side", type=int, help="length of a side of most samples' tensors, for the database's own 5")
    parser.add_argument("--all", action="store_true", help="print ops that do not differ, too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.side:
        cpu_ops.enlarge(options.side)
    calls: dict[str, list[Watched]] = defaultdict(list)
    found = cpu_ops.samples(options.names, getattr(torch, options.dtype), options.most)
    while chunk := tuple(islice(found, CHUNK)):
        for call in watched(chunk):
            calls[call.name].append(call)
    for name, seen in sorted(calls.items()):
        wrong = [call for call in seen if differs(call)]
        unknown = sum(call.predicted is None for call in seen)
        if wrong or options.all:
            print(f"{name:<60}{verdict(name):<14}{len(seen):>6} calls {len(wrong):>6} differ {unknown:>6} not on fakes")
        for call in sorted(wrong, key=lambda each: -abs(each.real - (each.predicted or 0)))[:1]:
            print(f"    real {call.real} predicted {call.predicted} {call.arguments[:300]} -> {call.story[:300]}")


def verdict(name: str) -> str:
    """What memplan holds of an op."""
    from memplan.trace.scratch.cpu_table import CPU_RULES

    return "ruled" if name in CPU_RULES else ""


if __name__ == "__main__":
    main()
