"""Public instances of buffer placement: minimalloc's eleven hard ones, idealloc's graphs, and very many buffers."""

import os
import platform
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from memplan.errors import UsageError
from memplan.plan.reuse import portfolio, search
from memplan.plan.reuse.check import problems_of
from memplan.plan.reuse.csv_file import read_problem
from memplan.plan.reuse.records import (
    ArenaBuffer,
    FeasiblePlacement,
    OptimalPlacement,
    Problem,
    Result,
)

DATA = Path(os.environ.get("MEMPLAN_DATA", Path(__file__).parents[2] / "shared" / "data")) / "dsa"
CAPACITY = 1_048_576
"""Of the eleven instances, as their file names say."""
MINIMALLOC_SECONDS = {
    "A": 3.32, "B": 2.37, "C": 0.47, "D": 1.72, "E": 2.53, "F": 3.89,
    "G": 0.82, "H": 1.22, "I": 2.46, "J": 0.72, "K": 0.47,
}  # fmt: skip
"""CPU seconds of google/minimalloc @9f5cf81 (C++, g++ 12 -O3) on a 2-core x86-64 machine, best of six runs; not
measured in the same run, since the program is on no index."""
MINIMALLOC_HEIGHTS = {"C": 1_048_576, "D": 1_040_384, "J": 1_048_576}
"""Lowest capacity at which it found a placement within 120 s, of those tried."""
GRAPHS = {
    "G_1": "iopddl_G_1.csv", "ResNet-50": "somas_tensors_resnet50.csv", "PanGu-2.6B": "somas_tensors_pangu_2.6B.csv",
}  # fmt: skip
MANY = 60_000


def header() -> str:
    """Machine and versions."""
    cores = os.cpu_count()
    ortools = _version("ortools")
    return (
        f"{datetime.now(UTC):%Y-%m-%d}  {platform.machine()}, {cores} cores  Python {platform.python_version()}  "
        f"numba {_version('numba')}  ortools {ortools}  highspy {version('highspy')}"
    )


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def hard(names: frozenset[str]) -> Iterator[str]:
    """The eleven at their capacity: CPU seconds beside the C++ program's."""
    yield f"{'':3}{'buffers':>8}{'CPU s':>9}{'C++ s':>8}{'ratio':>8}{'height':>11}{'bound':>11}  ending"
    started = time.process_time()
    search.compile_once()
    loading = time.process_time() - started
    yield f"loading the compiled search, not counted: {loading:.2f} CPU s; compiled once per installation, about 10 s"
    ours = theirs = 0.0
    for name, anchor in MINIMALLOC_SECONDS.items():
        if names and name not in names:
            continue
        problem = replace(_read("minimalloc", f"{name}.{CAPACITY}.csv"), capacity=CAPACITY)
        result, seconds = _timed(problem, 120.0)
        ours, theirs = ours + seconds, theirs + anchor
        times = f"{seconds:>9.2f}{anchor:>8.2f}{seconds / anchor:>8.2f}"
        yield f"{name:3}{len(problem.buffers):>8}{times}{_ending(problem, result)}"
    if theirs:
        yield f"{'all':3}{'':8}{ours:>9.2f}{theirs:>8.2f}{ours / theirs:>8.2f}"


def low(names: frozenset[str], seconds: float) -> Iterator[str]:
    """As low as possible, in a given time."""
    yield f"{'':3}{'minimalloc, 120 s':>18}{'CPU s':>9}{'':16}{'height':>11}{'bound':>11}  ending"
    for name, anchor in MINIMALLOC_HEIGHTS.items():
        if names and name not in names:
            continue
        problem = _read("minimalloc", f"{name}.{CAPACITY}.csv")
        result, took = _timed(problem, seconds)
        yield f"{name:3}{anchor:>18,}{took:>9.2f}{'':16}{_ending(problem, result)}"


def graphs(names: frozenset[str], seconds: float) -> Iterator[str]:
    """Large graphs: height over bound."""
    yield f"{'':12}{'buffers':>8}{'CPU s':>9}{'height / bound':>16}{'height':>16}{'bound':>16}  ending"
    for name, file in GRAPHS.items():
        if not names or name in names:
            yield _graph(name, _read("idealloc", file), seconds)


def many(seconds: float) -> Iterator[str]:
    """A made-up training step with very many buffers."""
    yield f"{'':12}{'buffers':>8}{'CPU s':>9}{'height / bound':>16}{'height':>16}{'bound':>16}  ending"
    yield _graph("made up", made_up(MANY), seconds)


def made_up(count: int, seed: int = 0) -> Problem:
    """A step of alike layers with jittered sizes: activations from forward to backward, temporaries in between."""
    draw = random.Random(seed)
    layers = count // 60
    buffers: list[ArenaBuffer] = []
    moments = 2 * 30 * layers
    for layer in range(layers):
        for op in range(30):
            now, size = 30 * layer + op, 512 * draw.randint(1, 4096)
            mirrored = moments - now
            kept = draw.random() < 0.4
            end = mirrored if kept else now + draw.randint(1, 6)
            buffers.append(ArenaBuffer(name=f"f{now}", start=now, end=max(end, now + 1), size=size))
            back = mirrored + draw.randint(0, 3)
            buffers.append(
                ArenaBuffer(name=f"b{now}", start=back, end=back + draw.randint(1, 8), size=512 * draw.randint(1, 4096))
            )
    return Problem(buffers=tuple(buffers))


def _graph(name: str, problem: Problem, seconds: float) -> str:
    result, took = _timed(problem, seconds)
    height, bound = _height(result), _bound(result)
    return (
        f"{name:12}{len(problem.buffers):>8}{took:>9.2f}{height / bound:>16.6f}{height:>16,}{bound:>16,}"
        f"  {_words(problem, result)}"
    )


def _read(folder: str, file: str) -> Problem:
    path = DATA / folder / file
    if not path.is_file():
        raise UsageError(f"there is no {path}", hint="set MEMPLAN_DATA")
    return read_problem(path)


def _timed(problem: Problem, seconds: float) -> tuple[Result, float]:
    started = time.process_time()
    result = portfolio.solve(problem, time_limit=seconds)
    return result, time.process_time() - started


def _ending(problem: Problem, result: Result) -> str:
    return f"{_height(result):>11,}{_bound(result):>11,}  {_words(problem, result)}"


def _words(problem: Problem, result: Result) -> str:
    if not isinstance(result, OptimalPlacement | FeasiblePlacement):
        return type(result).__name__
    wrong = problems_of(problem, result.placement)
    checked = f"INVALID: {wrong[0]}" if wrong else "valid"
    return f"{type(result).__name__}, {checked}, by {result.method}"


def _height(result: Result) -> int:
    if isinstance(result, OptimalPlacement | FeasiblePlacement):
        return result.placement.height
    return result.best.height if result.best else 0


def _bound(result: Result) -> int:
    return result.placement.height if isinstance(result, OptimalPlacement) else result.bound
