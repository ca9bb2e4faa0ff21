"""Improvement: never worse than where it began, right, and as low as the bound where the orderings are not."""

from dataclasses import replace

from memplan.plan.reuse import greedy, improve
from memplan.plan.reuse.bound import lower_bound
from memplan.plan.reuse.check import problems_of
from memplan.plan.reuse.decompose import placed
from memplan.plan.reuse.ejection import push, state_of
from memplan.plan.reuse.records import ArenaBuffer, OptimalPlacement, Problem
from memplan.plan.reuse.result import best_of
from memplan.plan.reuse.table import table_of
from tests.plan.reuse.problems import problems
from tests.support.laws import swept


@swept(quick=18, full=60, problem=problems())
def test_solver_is_not_above_greedy(problem):
    found = best_of(improve.solve(problem, time_limit=0.02))
    assert problems_of(problem, found) == ()
    assert lower_bound(problem).bytes <= found.height <= best_of(greedy.solve(problem, time_limit=60)).height


@swept(quick=60, full=200, problem=problems(most=14))
def test_whoever_is_placed_by_pushing_is_placed_right(problem):
    """After any number of pushes: of those that have a place none shares a byte, and all end at the target."""
    table = table_of(problem)
    target = max([lower_bound(problem).bytes, *(buffer.size for buffer in problem.buffers)])
    start = next(iter(greedy.placements(table)))
    state, waiting = state_of(table, start.lows, greedy.area(table), target)
    for _ in range(12):
        left = push(state, target, waiting, 1)
        there = [table.indices[row] for row in range(len(table.sizes)) if state.placed[row]]
        offsets = [int(state.lows[row]) for row in range(len(table.sizes)) if state.placed[row]]
        buffers = tuple(problem.buffers[index] for index in there)
        top = max((o + b.size for o, b in zip(offsets, buffers, strict=True)), default=0)
        assert problems_of(Problem(buffers=buffers), placed(buffers, offsets)) == ()
        assert top <= target
        if left < 0:
            break
        assert left == len(table.sizes) - len(there)
        waiting = left


def test_a_start_is_kept_if_nothing_is_lower():
    spans = ((0, 3, 4), (2, 6, 3), (5, 9, 5), (1, 8, 2), (4, 7, 1))
    problem = Problem(
        buffers=tuple(ArenaBuffer(name=str(i), start=a, end=b, size=s) for i, (a, b, s) in enumerate(spans))
    )
    best = improve.solve(problem, time_limit=5)
    assert isinstance(best, OptimalPlacement)
    again = improve.solve(replace(problem, capacity=best.placement.height), time_limit=0, start=best.placement)
    assert again.placement == best.placement
