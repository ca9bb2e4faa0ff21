"""The search against placements counted out one by one, with every feature of a buffer."""

import csv
import json
import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.plan.reuse import search, search_shape
from memplan.plan.reuse.check import problems_of
from memplan.plan.reuse.decompose import placed
from memplan.plan.reuse.records import (
    ArenaBuffer,
    FeasiblePlacement,
    InfeasiblePlacement,
    OptimalPlacement,
    PlacementTimedOut,
    Problem,
)

DATA = Path(os.environ.get("MEMPLAN_DATA", Path(__file__).parents[4] / "shared" / "data")) / "dsa" / "minimalloc"
LONG = 60.0
"""Seconds that no search of a small problem takes."""


@st.composite
def _buffer(draw, index):
    start = draw(st.integers(0, 4))
    end = start + draw(st.integers(1, 4))
    alignment = draw(st.sampled_from((1, 1, 1, 2, 3, 4)))
    offset = draw(st.none() | st.none() | st.none() | st.integers(0, 2).map(lambda k: k * alignment))
    gaps = ()
    if end - start > 2 and draw(st.booleans()):
        gaps = ((start + 1, draw(st.integers(start + 2, end - 1))),)
    size = draw(st.integers(0, 5))
    return ArenaBuffer(name=str(index), start=start, end=end, size=size, alignment=alignment, offset=offset, gaps=gaps)


@st.composite
def _problems(draw):
    buffers = tuple(draw(_buffer(index)) for index in range(draw(st.integers(0, 5))))
    return Problem(buffers=buffers)


@st.composite
def _plain_problems(draw):
    """More buffers than offsets could be counted out for, over enough time to fall into groups."""
    rows = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 9)), min_size=5, max_size=7))
    buffers = (ArenaBuffer(name=str(i), start=at, end=at + n, size=size) for i, (at, n, size) in enumerate(rows))
    return Problem(buffers=tuple(buffers))


def _alive(buffer):
    return set(range(buffer.start, buffer.end)) - {t for begin, end in buffer.gaps for t in range(begin, end)}


def _fits(buffers, height, offsets=()):
    """Is there any placement below a height: every offset of every buffer is tried."""
    if len(offsets) == len(buffers):
        return True
    buffer = buffers[len(offsets)]
    places = range(height - buffer.size + 1) if buffer.offset is None else (buffer.offset,)
    return any(
        at % buffer.alignment == 0 and at + buffer.size <= height and _free(buffer, at, buffers, offsets)
        and _fits(buffers, height, (*offsets, at))
        for at in places
    )  # fmt: skip


def _free(buffer, at, buffers, offsets):
    return not any(
        at < low + other.size and low < at + buffer.size and _alive(buffer) & _alive(other)
        for other, low in zip(buffers, offsets, strict=False)
    )


def _lowest(problem):
    """The least height, or None where those of fixed offset contradict each other."""
    buffers = [buffer for buffer in problem.buffers if buffer.size]
    loose = sum(b.size + b.alignment for b in buffers) + max(
        (b.offset + b.size for b in buffers if b.offset), default=0
    )
    return next((height for height in range(loose + 1) if _fits(buffers, height)), None)


def _lowest_in_any_order(problem):
    """Each order puts buffers down, one after the other, on top of all before it that it meets; one order is best."""
    best = sum(buffer.size for buffer in problem.buffers)
    for order in permutations(problem.buffers):
        tops = [0] * 14
        for buffer in order:
            span = slice(buffer.start, buffer.end)
            tops[span] = [max(tops[span]) + buffer.size] * (buffer.end - buffer.start)
        best = min(best, *[max(tops)])
    return best


def _check(problem, placement):
    assert problems_of(problem, placement) == ()


@given(_problems(), st.sampled_from(search.RULES))
def test_the_lowest_placement_is_found_and_proved_by_every_rule(problem, rule):
    with mock.patch.object(search, "RULES", (rule,)):
        result = search.solve(problem, time_limit=LONG)
    lowest = _lowest(problem)
    if lowest is None:
        assert isinstance(result, InfeasiblePlacement)
    else:
        assert isinstance(result, OptimalPlacement)
        assert result.placement.height == lowest
        _check(problem, result.placement)


@given(_problems(), st.integers(0, 20), st.sampled_from(search.RULES))
def test_a_capacity_is_kept_or_excluded_as_counting_out_says(problem, capacity, rule):
    problem = Problem(buffers=problem.buffers, capacity=capacity)
    with mock.patch.object(search, "RULES", (rule,)):
        result = search.solve(problem, time_limit=LONG)
    lowest = _lowest(problem)
    if lowest is None or lowest > capacity:
        assert isinstance(result, InfeasiblePlacement)
        assert lowest is None or capacity < result.bound <= lowest
    else:
        assert isinstance(result, OptimalPlacement | FeasiblePlacement)
        _check(problem, result.placement)


@settings(max_examples=25, deadline=None)
@given(_plain_problems(), st.sampled_from(search.RULES))
def test_no_order_of_putting_buffers_down_is_lower(problem, rule):
    with mock.patch.object(search, "RULES", (rule,)):
        result = search.solve(problem, time_limit=LONG)
    assert isinstance(result, OptimalPlacement)
    assert result.placement.height == _lowest_in_any_order(problem)
    _check(problem, result.placement)


@settings(max_examples=25, deadline=None)
@given(_problems(), st.sampled_from(("FRAMES_PER_BUFFER", "CHOICES_PER_FRAME", "TRAIL_PER_BUFFER")))
def test_without_room_nothing_is_excluded_that_fits(problem, room):
    with mock.patch.object(search_shape, room, 0):
        result = search.solve(problem, time_limit=0.05)
    lowest = _lowest(problem)
    match result:
        case OptimalPlacement():
            assert result.placement.height == lowest
        case InfeasiblePlacement():
            assert lowest is None
        case FeasiblePlacement() | PlacementTimedOut():
            assert result.bound <= lowest


@settings(max_examples=25, deadline=None)
@given(_plain_problems())
def test_time_that_is_over_leaves_the_start_and_a_bound_that_holds(problem):
    offsets = [0]
    for before in problem.buffers[:-1]:
        offsets.append(offsets[-1] + before.size)
    start = placed(problem.buffers, offsets)
    result = search.solve(problem, time_limit=0, start=start)
    lowest = _lowest_in_any_order(problem)
    if isinstance(result, OptimalPlacement):
        assert result.placement.height == lowest
    else:
        assert isinstance(result, FeasiblePlacement)
        assert result.placement == start
        assert result.bound <= lowest
    assert isinstance(search.solve(problem, time_limit=0), PlacementTimedOut)


def test_a_placement_that_fits_is_not_searched_again():
    buffers = tuple(ArenaBuffer(name=str(i), start=0, end=1, size=1) for i in range(3))
    start = placed(buffers, [4, 0, 2])
    result = search.solve(Problem(buffers=buffers, capacity=5), time_limit=LONG, start=start)
    assert isinstance(result, FeasiblePlacement)
    assert result.placement == start
    result = search.solve(Problem(buffers=buffers, capacity=4), time_limit=LONG, start=start)
    assert isinstance(result, OptimalPlacement | FeasiblePlacement)
    assert result.placement.height <= 4


def _instance(name):
    if not DATA.is_dir():
        pytest.skip("needs the minimalloc instances")
    with (DATA / f"{name}.1048576.csv").open() as file:
        rows = list(csv.DictReader(file))
    return tuple(
        ArenaBuffer(name=row["id"], start=int(row["lower"]), end=int(row["upper"]), size=int(row["size"]))
        for row in rows
    )


@pytest.mark.parametrize(("name", "capacity"), [("A", 1_048_576), ("B", 1_048_576), ("C", 1_039_360), ("D", 1_040_384)])
def test_hard_instances_fit(name, capacity):
    """D does not fit in minimalloc's two minutes below this capacity; for the others it is the load, or hardly more."""
    problem = Problem(buffers=_instance(name), capacity=capacity)
    result = search.solve(problem, time_limit=LONG)
    assert isinstance(result, OptimalPlacement | FeasiblePlacement)
    _check(problem, result.placement)


PURE = """
import json, sys
sys.modules["numba"] = None
from memplan.plan.reuse import compiled, search
from memplan.plan.reuse.records import ArenaBuffer, Problem
assert not compiled.HAS_NUMBA
buffers = tuple(ArenaBuffer(**row) for row in json.load(sys.stdin))
print(json.dumps(search.solve(Problem(buffers=buffers), time_limit=60).placement.offsets))
"""


def test_interpreted_and_compiled_loops_put_buffers_at_the_same_offsets():
    rows = [
        {
            "name": str(i),
            "start": i * 7 % 23,
            "end": i * 7 % 23 + 1 + i % 6,
            "size": 1 + i * i % 11,
            "alignment": i % 2 + 1,
        }
        for i in range(40)
    ]
    run = subprocess.run(
        [sys.executable, "-c", PURE], input=json.dumps(rows), capture_output=True, text=True, check=True
    )
    result = search.solve(Problem(buffers=tuple(ArenaBuffer(**row) for row in rows)), time_limit=LONG)
    assert isinstance(result, OptimalPlacement)
    assert list(result.placement.offsets) == json.loads(run.stdout)
