"""Branch and bound over settled placements: for few hundred buffers that fit tightly, and for proofs.

It always holds its best placement and its best bound. ``search_kernel`` says what is searched and why nothing is lost.

How long a search takes to fit buffers has a heavy tail: an unlucky early answer costs for ever, and another rule or
order has none. So rules and orders take turns with few nodes each, which grow from round to round; from the second
round on, orders are shaken.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, product
from random import Random

from memplan.plan.reuse.bound import HeightBound, lower_bound
from memplan.plan.reuse.check import contradiction
from memplan.plan.reuse.compiled import HAS_NUMBA
from memplan.plan.reuse.granularity import grain_of
from memplan.plan.reuse.records import (
    ArenaBuffer,
    ArenaPlacement,
    InfeasiblePlacement,
    Problem,
    Result,
)
from memplan.plan.reuse.result import ended
from memplan.plan.reuse.search_kernel import EXCLUDED, PAUSED, PLACED, TRUNCATED, begin, explore
from memplan.plan.reuse.search_records import SearchShape, SearchState, SearchTask
from memplan.plan.reuse.search_shape import free_rows, is_small, shape_of, state_of, whole
from memplan.plan.reuse.table import BufferTable, table_of
from memplan.units import Bytes

METHOD = "search"
NODES_PER_LOOK = 4096 if HAS_NUMBA else 64
"""Questions between two looks at the clock: about 50 ms."""
FIRST_SLICE = 0.25
"""Seconds for a height before the next one is tried; doubled when all have had theirs."""
ORDERS = ("WAT", "TAW", "ZWA", "AWT")
"""Largest first, by: Width (duration), Area (duration x size), Total (highest load it is part of), siZe.
The first two are minimalloc's (ASPLOS 2023)."""
RULES = ((0, 0), (1, 0), (0, 1), (1, 1))
"""``SearchTask.anywhere`` and ``SearchTask.tightest``: no choice of the four is the best one everywhere."""
NODES_PER_BUFFER = 2
"""In the first round; a search without a wrong answer needs about one."""
GROWTH = 2
"""Of nodes, from one round to the next."""
SHAKES = (0.01, 0.02, 0.05, 0.1)
"""Standard deviation of what is added to a buffer's place in its order, as a share of all places; in turn."""


def solve(problem: Problem, *, time_limit: float, start: ArenaPlacement | None = None) -> Result:
    """Find a placement within the capacity, or exclude that there is one; without a capacity, the lowest placement.

    Optimal and Infeasible are proofs.

    Raises:
        UsageError: The offsets may need more than 64 bits.
    """
    compile_once()
    deadline = time.monotonic() + time_limit
    bound = lower_bound(problem)
    if reason := contradiction(problem):
        return InfeasiblePlacement(reason=reason, bound=bound.bytes)
    table = table_of(problem)
    goal = bound.bytes if problem.capacity is None else problem.capacity
    if bound.bytes <= goal and (start is None or start.height > goal) and is_small(table):
        search = _begun(table, bound, start)
        if problem.capacity is None:
            _lower(search, deadline)
        else:
            _attempt(search, problem.capacity, deadline)
        start, bound = search.best, search.bound
    return ended(problem, start, bound, method=METHOD)


@cache
def compile_once() -> None:
    """Compile the kernel, which takes ten seconds after an installation: a time limit is for searching."""
    pair = Problem(buffers=tuple(ArenaBuffer(name=name, start=0, end=1, size=1) for name in "ab"))
    table = table_of(pair)
    _attempt(_begun(table, lower_bound(pair), None), 2, math.inf)


@dataclass(slots=True, kw_only=True)
class _Search:
    """The state of a search: its best placement and bound."""

    table: BufferTable
    shape: SearchShape
    state: SearchState
    grain: int
    """Heights of settled placements are multiples of it."""
    loose: int
    """Height that settled placements never exceed."""
    best: ArenaPlacement | None
    bound: HeightBound
    attempts: int = 0
    """Seed of the next one."""


def _begun(table: BufferTable, bound: HeightBound, start: ArenaPlacement | None) -> _Search:
    shape = shape_of(table)
    tops = (table.fixed + table.sizes)[table.fixed >= 0]
    loose = int((table.sizes + table.alignments).sum() + tops.max(initial=0))
    grain = grain_of(table.problem)
    if bound.bytes % grain:
        reason = f"{bound.reason}, and heights are multiples of {grain}"
        bound = HeightBound(bytes=Bytes((bound.bytes // grain + 1) * grain), reason=reason)
    return _Search(table=table, shape=shape, state=state_of(shape), grain=grain, loose=loose, best=start, bound=bound)


def _lower(search: _Search, deadline: float) -> None:
    """The bound first, then heights between what failed and what is known, until the time is over."""
    if search.best is None:
        _attempt(search, search.loose, deadline)
    seconds = FIRST_SLICE
    while search.best is not None and search.best.height > search.bound.bytes and time.monotonic() < deadline:
        target = failed = int(search.bound.bytes)
        while target < search.best.height and time.monotonic() < deadline:
            if _attempt(search, target, min(deadline, time.monotonic() + seconds)) != PLACED:
                failed = target
            target = failed + max(1, (search.best.height - failed) // 2 // search.grain) * search.grain
        seconds *= 2


def _attempt(search: _Search, capacity: int, deadline: float) -> int:
    """Search for a placement within a height; keeps what it finds or proves."""
    capacity = min(capacity, search.loose)
    search.attempts += 1
    for task, nodes in turns(search.table, capacity, search.attempts):
        outcome = _take(search, task, nodes, deadline)
        if outcome == PLACED:
            _keep(search)
        elif outcome == EXCLUDED:
            excluded = Bytes((capacity // search.grain + 1) * search.grain)
            search.bound = HeightBound(bytes=excluded, reason=f"a search excluded every placement of {capacity} bytes")
        if outcome != PAUSED or time.monotonic() >= deadline:
            return outcome
    raise AssertionError  # Turns never end.


def _take(search: _Search, task: SearchTask, nodes: int, deadline: float) -> int:
    outcome = PAUSED if begin(search.shape, search.state, task.capacity) else EXCLUDED
    while outcome == PAUSED and nodes > 0 and time.monotonic() < deadline:
        outcome = explore(search.shape, search.state, task, min(nodes, NODES_PER_LOOK))
        nodes -= NODES_PER_LOOK
    # Branches that were given up are not excluded.
    return PAUSED if outcome == EXCLUDED and search.state.control[TRUNCATED] else outcome


def _keep(search: _Search) -> None:
    lows = [int(offset) for offset in search.table.fixed]
    for row, offset in zip(free_rows(search.table), search.state.offset, strict=True):
        lows[row] = int(offset)
    placement = search.table.placement(lows)
    if search.best is None or placement.height < search.best.height:
        search.best = placement


def turns(table: BufferTable, capacity: int, seed: int) -> Iterator[tuple[SearchTask, int]]:
    """Short searches without end, each with the nodes that it may take.

    Args:
        table: The problem.
        capacity: Height to be kept.
        seed: Of what shakes the orders.
    """
    random = Random(seed)  # noqa: S311 - no secret; the same seed must give the same turns.
    places = {keys: _places(_sorted(table, keys)) for keys in ORDERS}
    size = len(free_rows(table))
    for cycle, later in ((cycle, later) for cycle in count() for later in (0, 1)):
        nodes = int(NODES_PER_BUFFER * size * GROWTH**cycle) + 16
        shake = SHAKES[cycle % len(SHAKES)] * size if cycle else 0.0
        for keys, (anywhere, tightest) in product(ORDERS, RULES):
            values = [place + random.gauss(0, shake) for place in places[keys]]
            order = sorted(range(size), key=values.__getitem__)
            rank = whole(_places(order))
            yield SearchTask(capacity=capacity, rank=rank, anywhere=anywhere, tightest=tightest, later=later), nodes


def _sorted(table: BufferTable, keys: str) -> list[int]:
    rows = free_rows(table)
    times = table.times
    buffers = {row: table.problem.buffers[table.indices[row]] for row in rows}
    width = {row: buffer.end - buffer.start for row, buffer in buffers.items()}
    measures = {
        "W": lambda row: width[row],
        "A": lambda row: width[row] * int(table.sizes[row]),
        "T": lambda row: int(table.loads[times.starts[row] : times.ends[row]].max()),
        "Z": lambda row: int(table.sizes[row]),
    }
    return sorted(range(len(rows)), key=lambda k: tuple(-measures[key](rows[k]) for key in keys))


def _places(order: Sequence[int]) -> list[int]:
    places = [0] * len(order)
    for place, buffer in enumerate(order):
        places[buffer] = place
    return places
