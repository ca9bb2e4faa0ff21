"""Lower and lower from what the simple orderings found: heights are wanted, and buffers push each other out for them.

First the goal itself is tried from every start, with few steps: on real graphs that is often all. Then heights between
the goal and the lowest known, and all of it again with twice the steps, until the time is over.
"""

import itertools
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from memplan.plan.reuse.bound import lower_bound
from memplan.plan.reuse.ejection import push, state_of
from memplan.plan.reuse.fit import place_in_order
from memplan.plan.reuse.greedy import ALL, GreedyPlacement, area, height_of, placements
from memplan.plan.reuse.records import ArenaBuffer, ArenaPlacement, Problem, Result
from memplan.plan.reuse.result import ended
from memplan.plan.reuse.table import BufferTable, table_of

FIRST_STEPS = 1_000
"""Pushes with which a height is tried for the first time; doubled each round."""
STEPS_EACH = 4
"""Pushes more for everybody who waits at first."""
STEPS_AT_ONCE = 50
"""Pushes between looks at the clock: about a tenth of a second for 100,000 buffers."""
MANY = 5_000
"""Beyond so many buffers there is time to work on few starts, so that they are the lowest."""
START_SHARE = 1 / 2
"""Of the time, for making starts: no ordering wins everywhere, and they are cheaper than many pushes."""
SHARES = (0.5, 0.75, 0.9)
"""Wanted heights between the goal (0) and the lowest known (1)."""

if TYPE_CHECKING:
    import numpy as np

    Weights = np.ndarray[Any, Any]
else:
    Weights = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class _Until:
    """When an attempt is given up."""

    steps: int
    """Pushes."""
    deadline: float
    """By the monotonic clock."""


def solve(
    problem: Problem, *, time_limit: float, start: ArenaPlacement | None = None, rounds: int | None = None
) -> Result:
    """Improve what the orderings find until the bound, the capacity or the time is reached.

    ``start`` is known already. All heights between are tried ``rounds`` times; 0: only the goal, from every start.
    None: until the deadline.
    """
    compile_once()
    deadline = time.monotonic() + time_limit
    table, bound = table_of(problem), lower_bound(problem)
    starts = itertools.chain([] if start is None else [_known(table, start)], placements(table))
    goal = max(bound.bytes, problem.capacity or 0)
    best = improved(table, starts, goal=goal, deadline=deadline, rounds=rounds)
    return ended(problem, table.placement(best.lows), bound, method=best.ordering)


@cache
def compile_once() -> None:
    """Compile the loops, which takes some seconds after an installation: a time limit is for searching."""
    pair = Problem(buffers=tuple(ArenaBuffer(name=name, start=0, end=1, size=1) for name in "ab"))
    table = table_of(pair)
    start = next(placements(table))
    _below(table, start, area(table), start.height, _Until(steps=1, deadline=math.inf))


def improved(
    table: BufferTable, starts: Iterable[GreedyPlacement], *, goal: int, deadline: float, rounds: int | None = None
) -> GreedyPlacement:
    """The lowest placement within the time.

    As many starts are taken as there is time for, by the monotonic clock. ``goal`` is a height that is good enough;
    ``rounds`` as of ``solve``.
    """
    until = _Until(steps=FIRST_STEPS, deadline=deadline)
    known: list[GreedyPlacement] = []
    best: GreedyPlacement | None = None
    for start in starts if len(table.sizes) <= MANY else _lowest_first(table, starts, goal, until):
        known.append(start)
        if best is None or start.height < best.height:
            best = _lowered(table, [start], start, goal, until)
        if best.height <= goal or (time.monotonic() > deadline and len(table.sizes) > ALL):
            return best
    assert best is not None  # noqa: S101 - there is at least one start.
    for _ in itertools.count() if rounds is None else range(rounds):
        best = _lowered(table, known, best, goal, until)
        if best.height <= goal or time.monotonic() > deadline:
            break
        until = replace(until, steps=2 * until.steps)
    return best


def _lowest_first(
    table: BufferTable, starts: Iterable[GreedyPlacement], goal: int, until: _Until
) -> list[GreedyPlacement]:
    """As many starts as there is time to make; the goal is tried from each, and one that reaches it is all."""
    gathered_by = time.monotonic() + START_SHARE * (until.deadline - time.monotonic())
    known: list[GreedyPlacement] = []
    for start in starts:
        lowered = _below(table, start, area(table), goal, until) if start.height > goal else start
        if lowered is not None:
            return [lowered]
        known.append(start)
        if time.monotonic() > gathered_by:
            break
    return sorted(known, key=_height)


def _height(found: GreedyPlacement) -> int:
    return found.height


def _lowered(
    table: BufferTable, starts: Sequence[GreedyPlacement], best: GreedyPlacement, goal: int, until: _Until
) -> GreedyPlacement:
    """The lowest placement of one round: the goal from every start, and heights between from the best."""
    for weights in (area(table), area(table) ** 0.5, table.sizes):
        for source, share in [*((start, 0.0) for start in starts), *((None, share) for share in SHARES)]:
            found: GreedyPlacement | None = best
            while found is not None and best.height > goal and time.monotonic() < until.deadline:
                target = goal + int((best.height - goal) * share)
                found = _below(table, source or best, weights, target, until)
                best = found or best
    return best


def _known(table: BufferTable, placement: ArenaPlacement) -> GreedyPlacement:
    import numpy as np

    lows = np.array([placement.offsets[index] for index in table.indices], dtype=np.int64)
    return GreedyPlacement(ordering="known", lows=lows, height=height_of(table, lows))


def _below(
    table: BufferTable, start: GreedyPlacement, weights: Weights, target: int, until: _Until
) -> GreedyPlacement | None:
    """A placement that ends at the target, if one is found within the steps and the time."""
    state, waiting = state_of(table, start.lows, weights, target)
    for _ in range(0, until.steps + STEPS_EACH * waiting, STEPS_AT_ONCE):
        waiting = push(state, target, waiting, STEPS_AT_ONCE)
        if waiting <= 0 or time.monotonic() > until.deadline:
            break
    if waiting:
        return None
    return _settled(table, GreedyPlacement(ordering="improve", lows=state.lows, height=height_of(table, state.lows)))


def _settled(table: BufferTable, found: GreedyPlacement) -> GreedyPlacement:
    """Everybody falls as far as those below allow, from the lowest on."""
    lows = place_in_order(table, found.lows.argsort(kind="stable"), tightest=False)
    height = height_of(table, lows)
    return replace(found, lows=lows, height=height) if height < found.height else found
