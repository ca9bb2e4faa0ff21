"""All solvers together: the lowest placement of small problems, whatever the order, and how each end is told."""

import random
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from memplan.plan.reuse import greedy, portfolio
from memplan.plan.reuse.bound import lower_bound
from memplan.plan.reuse.check import problems_of
from memplan.plan.reuse.records import (
    ArenaBuffer,
    FeasiblePlacement,
    InfeasiblePlacement,
    OptimalPlacement,
    PlacementTimedOut,
    Problem,
)
from memplan.plan.reuse.result import best_of, bound_of
from memplan.plan.reuse.table import table_of
from tests.plan.reuse.problems import lowest_height, problems
from tests.support.laws import swept


@swept(quick=15, full=60, problem=problems(most=6), seed=st.integers())
def test_between_the_bound_and_greedy_in_any_order(problem, seed):
    shuffled = list(problem.buffers)
    random.Random(seed).shuffle(shuffled)
    results = [portfolio.solve(p, time_limit=0.3) for p in (problem, Problem(buffers=tuple(shuffled)))]
    lowest = lowest_height(problem)
    for result in results:
        assert isinstance(result, OptimalPlacement | FeasiblePlacement)
        assert lower_bound(problem).bytes <= bound_of(result) <= lowest <= result.placement.height
        assert not isinstance(result, OptimalPlacement) or result.placement.height == lowest
    assert problems_of(problem, results[0].placement) == ()
    assert results[0].placement.height <= best_of(greedy.solve(problem, time_limit=60)).height
    if all(isinstance(result, OptimalPlacement) for result in results):
        assert results[0].placement.height == results[1].placement.height


def test_no_ordering_is_lower_though_a_training_step_has_more_buffers_than_are_placed_at_once(monkeypatch):
    monkeypatch.setattr(portfolio, "SCHEDULE_OF_FEW", ())
    draw = random.Random(1)
    starts = [draw.randrange(400) for _ in range(greedy.ALL + 200)]
    problem = Problem(buffers=tuple(
        ArenaBuffer(name=str(index), start=start, end=start + draw.randint(1, 60), size=draw.randint(1, 99))
        for index, start in enumerate(starts)
    ))  # fmt: skip
    heights = [found.height for found in greedy.placements(table_of(problem))]
    assert min(heights) < heights[0]
    assert best_of(portfolio.solve(problem, time_limit=60)).height == min(heights)


@swept(quick=15, full=60, problem=problems(most=5), capacity=st.integers(0, 40))
def test_endings_tell_the_truth(problem, capacity):
    lowest = lowest_height(problem)
    match portfolio.solve(replace(problem, capacity=capacity), time_limit=0.2):
        case InfeasiblePlacement(bound=bound, best=best):
            assert capacity < bound <= lowest
            assert problems_of(problem, best) == ()
        case PlacementTimedOut(best=best, bound=bound):
            assert best.height > capacity >= bound
        case OptimalPlacement(placement=placement):
            assert placement.height == lowest <= capacity
        case FeasiblePlacement(placement=placement, bound=bound):
            assert bound <= lowest <= placement.height <= capacity


@pytest.mark.parametrize(("second", "reason"), [
    ({"offset": 4}, "buffers a and b overlap"), ({"offset": 9, "alignment": 2}, "not aligned"),
    ({"offset": -8}, "before"),
])  # fmt: skip
def test_fixed_offsets_that_cannot_be_are_infeasible(second, reason):
    buffers = (
        ArenaBuffer(name="a", start=0, end=2, size=5, offset=0),
        ArenaBuffer(name="b", start=1, end=2, size=5, **second),
    )
    result = portfolio.solve(Problem(buffers=buffers), time_limit=1)
    assert isinstance(result, InfeasiblePlacement)
    assert reason in result.reason


def test_a_capacity_below_the_load_says_which_moment():
    buffers = tuple(ArenaBuffer(name=name, start=i, end=i + 2, size=5) for i, name in enumerate("abc"))
    result = portfolio.solve(Problem(buffers=buffers, capacity=9), time_limit=1)
    assert result == InfeasiblePlacement(reason="buffers need 10 bytes at moment 1", bound=10, best=best_of(result))


def test_a_fixed_buffer_above_the_capacity_says_which():
    problem = Problem(buffers=(ArenaBuffer(name="high", start=0, end=2, size=5, offset=8),), capacity=12)
    result = portfolio.solve(problem, time_limit=1)
    assert result == InfeasiblePlacement(reason="buffer high must lie at 8", bound=13, best=best_of(result))
    assert result.best.height == 13


def test_parts_that_never_meet_are_each_lowered():
    """Two parts of one shape, which no ordering places at the bound of 17."""
    shape = ((3, 6, 5), (2, 7, 3), (2, 3, 1), (5, 6, 5), (2, 5, 4), (3, 6, 2), (3, 4, 3))
    buffers = tuple(
        ArenaBuffer(name=f"{part}.{i}", start=start + 9 * part, end=end + 9 * part, size=size)
        for part in range(2)
        for i, (start, end, size) in enumerate(shape)
    )
    assert greedy.solve(Problem(buffers=buffers), time_limit=60).placement.height > 17
    result = portfolio.solve(Problem(buffers=buffers), time_limit=60)
    assert isinstance(result, OptimalPlacement)
    assert result.placement.height == 17
    assert problems_of(Problem(buffers=buffers), result.placement) == ()


def test_nothing_to_place():
    assert portfolio.solve(Problem(buffers=()), time_limit=1).placement.offsets == ()
