"""Orderings: right placements, never below the load, the same for every permutation and with or without a compiler."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.plan.reuse import greedy
from memplan.plan.reuse.check import problems_of
from memplan.plan.reuse.fit import Room, place_in_order, place_rows, place_rows_by_arrays
from memplan.plan.reuse.records import (
    ArenaBuffer,
    InfeasiblePlacement,
    OptimalPlacement,
    PlacementTimedOut,
    Problem,
)
from memplan.plan.reuse.result import best_of
from memplan.plan.reuse.table import table_of
from tests.plan.reuse.problems import load, lowest_height, moments, problems
from tests.support.laws import swept


@swept(quick=50, full=200, problem=problems())
def test_every_ordering_is_right_and_not_below_the_load(problem):
    table = table_of(problem)
    for found in greedy.placements(table):
        placement = table.placement(found.lows)
        assert problems_of(problem, placement) == ()
        assert placement.height >= found.height >= load(problem)


@swept(quick=25, full=100, problem=problems(), seed=st.integers())
def test_permuting_buffers_changes_nothing(problem, seed):
    shuffled = list(problem.buffers)
    random.Random(seed).shuffle(shuffled)
    before, after = (best_of(greedy.solve(p, time_limit=60)) for p in (problem, Problem(buffers=tuple(shuffled))))
    by_name = {b.name: o for b, o in zip(problem.buffers, before.offsets, strict=True)}
    assert {b.name: o for b, o in zip(shuffled, after.offsets, strict=True)} == by_name


@swept(quick=50, full=200, problem=problems(most=20), tightest=st.booleans(), seed=st.integers(0, 2**32))
def test_loops_and_arrays_place_alike(problem, tightest, seed):
    table = table_of(problem)
    order = np.random.default_rng(seed).permutation(len(table.sizes))
    order = np.concatenate((order[table.fixed[order] >= 0], order[table.fixed[order] < 0]))
    found = []
    for place in (place_rows, place_rows_by_arrays):
        spaces = [np.zeros(len(order), dtype=np.int64) for _ in range(4)]
        place(order, Room(table.times, table.sizes, table.alignments, table.fixed, *spaces), tightest)
        found.append(spaces[0].tolist())
    assert found[0] == found[1] == place_in_order(table, order, tightest=tightest).tolist()


@given(problem=problems())
def test_collapsed_moments_meet_as_the_given_ones(problem):
    """The table has other moments; who meets whom and the load are the same."""
    table = table_of(problem)
    assert table.loads.max(initial=0) == load(problem)
    times = table.times
    for row, index in enumerate(table.indices):
        for other, index2 in enumerate(table.indices):
            spans = [
                zip(times.stretch_starts[times.first[r] : times.first[r + 1]],
                    times.stretch_ends[times.first[r] : times.first[r + 1]], strict=True)
                for r in (row, other)
            ]  # fmt: skip
            one, two = ({t for a, b in pairs for t in range(a, b)} for pairs in spans)
            assert bool(one & two) == bool(moments(problem.buffers[index]) & moments(problem.buffers[index2]))


@swept(quick=25, full=100, problem=problems(most=5), capacity=st.integers(0, 40))
def test_endings_tell_the_truth(problem, capacity):
    lowest = lowest_height(problem)
    result = greedy.solve(replace(problem, capacity=capacity), time_limit=60)
    match result:
        case InfeasiblePlacement():
            assert lowest >= result.bound > capacity
        case PlacementTimedOut():
            assert result.best.height > capacity
        case _:
            assert result.placement.height <= capacity
            assert not isinstance(result, OptimalPlacement) or result.placement.height == lowest


def test_a_hole_between_two_is_used():
    found = ((0, 2, 10), (2, 4, 10), (0, 4, 5))
    buffers = tuple(ArenaBuffer(name=str(i), start=a, end=b, size=size) for i, (a, b, size) in enumerate(found))
    assert best_of(greedy.solve(Problem(buffers=buffers), time_limit=60)).height == 15


def test_buffers_without_bytes_need_no_place():
    buffers = (ArenaBuffer(name="none", start=0, end=9, size=0), ArenaBuffer(name="some", start=0, end=9, size=7))
    assert greedy.solve(Problem(buffers=buffers), time_limit=60).placement.offsets == (0, 0)
    assert greedy.solve(Problem(buffers=()), time_limit=60).placement.height == 0


def test_huge_buffers_are_placed_or_refused():
    def twice(size):
        return Problem(buffers=tuple(ArenaBuffer(name=name, start=0, end=1, size=size) for name in "ab"))

    assert greedy.solve(twice(2**60), time_limit=60).placement.height == 2**61
    with pytest.raises(UsageError, match="64 bits"):
        greedy.solve(twice(2**62), time_limit=60)
