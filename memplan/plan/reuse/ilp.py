"""The placement as an integer program, written with PuLP and solved by HiGHS: exact, for few buffers.

    offset(a) + size(a) ≤ offset(b) + M · above(a, b)
    offset(b) + size(b) ≤ offset(a) + M · (1 - above(a, b))

Of every two that meet in time, one lies above the other; M is a height that is reached anyway.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from memplan.errors import UsageError
from memplan.plan.quiet_highs import quiet_highs
from memplan.plan.reuse import greedy
from memplan.plan.reuse.bound import HeightBound, lower_bound, stretches
from memplan.plan.reuse.fit import place_in_order
from memplan.plan.reuse.granularity import grain_of
from memplan.plan.reuse.outside import improved_outside
from memplan.plan.reuse.records import ArenaBuffer, ArenaPlacement, Problem, Result
from memplan.plan.reuse.result import best_of, ended
from memplan.plan.reuse.table import table_of

MOST_PAIRS = 20_000
"""Of buffers that meet: each is a binary variable with two rules."""
FEW_PAIRS = 200
"""So many are solved in this process: HiGHS looks at the clock only between phases, and theirs are short."""


def solve(problem: Problem, *, time_limit: float) -> Result:
    """The lowest placement, as HiGHS proves it.

    Beyond some 40 buffers there is seldom a proof in time.

    Raises:
        UsageError: More than ``MOST_PAIRS`` buffers meet.
    """
    deadline = time.monotonic() + time_limit
    start, bound = best_of(greedy.solve(problem, time_limit=time_limit)), lower_bound(problem)
    assert start is not None  # noqa: S101 - greedy always places.
    if start.height <= bound.bytes:
        return ended(problem, start, bound, method="greedy")
    if (pairs := sum(1 for _ in islice(_pairs(problem), MOST_PAIRS + 1))) > MOST_PAIRS:
        raise UsageError(f"more than {pairs - 1:,} pairs of buffers meet, too many for an integer program")
    if pairs <= FEW_PAIRS:
        return _improved(problem, start, bound, deadline)
    return improved_outside(_improved, problem, start, bound, deadline)


def _improved(problem: Problem, start: ArenaPlacement, bound: HeightBound, deadline: float) -> Result:
    """Improve a placement with HiGHS."""
    import pulp

    unit = grain_of(problem)
    model = pulp.LpProblem("placement", pulp.LpMinimize)
    height = model.add_variable("height", bound.bytes / unit, start.height / unit)
    model += height
    offsets = _offsets(model, problem, start.height, unit)
    for offset, buffer in zip(offsets, problem.buffers, strict=True):
        # One of no bytes takes no part in the height, wherever it must lie.
        if buffer.size:
            model += offset + buffer.size / unit <= height
    for rule in _rules(model, problem, offsets, start.height // unit, unit):
        model += rule
    # A gap of less than one unit is none; the height is a whole number of them. No number of threads is asked for:
    # HiGHS has one pool for the whole process, and fails where that was made with another.
    with quiet_highs():
        model.solve(pulp.HiGHS(msg=False, timeLimit=max(0.0, deadline - time.monotonic()), gapRel=0, gapAbs=0.9))
    if model.sol_status not in {pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible}:
        return ended(problem, start, bound, method="greedy")
    settled = _settled(problem, [offset if isinstance(offset, float) else pulp.value(offset) for offset in offsets])
    best = min(start, settled, key=lambda placement: placement.height)
    if model.sol_status == pulp.LpSolutionOptimal:
        bound = HeightBound(bytes=best.height, reason="HiGHS excluded all below")
    return ended(problem, best, bound, method="HiGHS")


def _offsets(model: Any, problem: Problem, most: int, unit: int) -> list[Any]:
    found: list[Any] = []
    for index, buffer in enumerate(problem.buffers):
        if buffer.offset is not None or not buffer.size:
            found.append(float((buffer.offset or 0) / unit))
        elif (step := buffer.alignment // unit) > 1:
            found.append(step * model.add_variable(f"step{index}", 0, most // buffer.alignment, cat="Integer"))
        else:
            found.append(model.add_variable(f"offset{index}", 0, most / unit))
    return found


def _rules(model: Any, problem: Problem, offsets: Sequence[Any], most: int, unit: int) -> Iterator[Any]:
    for i, j in _pairs(problem):
        one, other = problem.buffers[i], problem.buffers[j]
        above = model.add_variable(f"above{i}_{j}", cat="Binary")
        yield offsets[i] + one.size / unit <= offsets[j] + most * above
        yield offsets[j] + other.size / unit <= offsets[i] + most * (1 - above)


def _pairs(problem: Problem) -> Iterator[tuple[int, int]]:
    """Buffers with bytes that meet in time."""
    alive: list[tuple[int, ArenaBuffer]] = []
    for i, one in sorted(enumerate(problem.buffers), key=lambda item: item[1].start):
        if one.size:
            alive = [(j, other) for j, other in alive if other.end > one.start]
            yield from ((i, j) for j, other in alive if _meet(one, other))
            alive.append((i, one))


def _meet(one: ArenaBuffer, other: ArenaBuffer) -> bool:
    return any(a < d and c < b for a, b in stretches(one) for c, d in stretches(other))


def _settled(problem: Problem, offsets: Sequence[float]) -> ArenaPlacement:
    """Whole numbers again: all in the order in which they lie, each as low as those below it allow."""
    import numpy as np

    table = table_of(problem)
    order = np.argsort(np.array([offsets[index] for index in table.indices]), kind="stable")
    return table.placement(place_in_order(table, order, tightest=False))
