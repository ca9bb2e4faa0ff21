"""Below a height that is wanted: each buffer pushes out whoever costs least, until nobody is left without a place.

    wanted ┄┄┄┄┄┄┄┄┄┄┄┄┄
      ▲ ┌──┐┌──┐
      │ │  ││  │◄─ waits
      └─┴──┴┴──┴──► time

The one that waits and weighs most takes the offset at which those in its way weigh least, and they wait in turn.
Whoever had to push is heavier from then on, so that no two push each other for ever (guided ejection search: Nagata and
Bräysy 2009, on vehicle routes).
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from memplan.plan.reuse.compiled import compiled
from memplan.plan.reuse.neighbours import neighbours, sort_by
from memplan.plan.reuse.table import BufferTable, Times, Whole

if TYPE_CHECKING:
    import numpy as np

HEAVIEST = 1 << 30
"""Weight of the heaviest buffer: with blame up to MOST_BLAME, sums over millions stay within 64 bits."""
MOST_BLAME = 1 << 10
"""How often having to push makes a buffer heavier."""
NEVER = 1 << 62
"""Costs more than any sum of weights."""
MULTIPLIER, INCREMENT, MASK = 1103515245, 12345, 0x7FFFFFFF
"""The linear congruential generator of the C standard's example: the same draws, compiled or not."""


class EjectionState(NamedTuple):
    """Where everybody is; a tuple, for compiled loops take tuples."""

    times: Times
    """Lifespans."""
    sizes: Whole
    """Bytes per row."""
    alignments: Whole
    """Per row."""
    fixed: Whole
    """Offset per row that is given; -1 where it is free."""
    lows: Whole
    """Offset per row."""
    tops: Whole
    """End per row."""
    placed: Whole
    """Per row: 1 where it has a place."""
    weights: Whole
    """Per row: what it costs to push it out for the first time."""
    blame: Whole
    """Per row: how often it had to push, and one."""
    waiting: Whole
    """Rows without a place."""
    by_low: Whole
    """Room for all rows."""
    by_top: Whole
    """Room for all rows."""
    draw: Whole
    """State of the generator."""


def state_of(
    table: BufferTable, lows: Whole, weights: "np.ndarray[Any, Any]", target: int
) -> tuple[EjectionState, int]:
    """A placement as a state, with those above the target waiting, and their number."""
    import numpy as np

    tops = lows + table.sizes
    waiting = np.flatnonzero((tops > target) & (table.fixed < 0))
    placed = np.ones_like(lows)
    placed[waiting] = 0
    scaled = weights * (HEAVIEST / max(float(weights.max(initial=1)), 1.0))
    state = EjectionState(
        times=table.times,
        sizes=table.sizes,
        alignments=table.alignments,
        fixed=table.fixed,
        lows=lows.copy(),
        tops=tops,
        placed=placed,
        weights=np.maximum(scaled, 1).astype(np.int64),
        blame=np.ones_like(lows),
        waiting=np.concatenate((waiting, np.zeros(len(lows) - len(waiting), dtype=np.int64))),
        by_low=np.zeros_like(lows),
        by_top=np.zeros_like(lows),
        draw=np.ones(1, dtype=np.int64),
    )
    return state, len(waiting)


@compiled
def push(state: EjectionState, target: int, waiting: int, steps: int) -> int:
    """Place whoever waits below the target, at most ``steps`` of them, and return how many wait then.

    -1: one has no place at all below the target, for those of fixed offset are in its way everywhere.
    """
    for _ in range(steps):
        if waiting == 0:
            return 0
        heaviest = 0
        for at in range(1, waiting):
            if state.weights[state.waiting[at]] > state.weights[state.waiting[heaviest]]:
                heaviest = at
        row = state.waiting[heaviest]
        waiting -= 1
        state.waiting[heaviest] = state.waiting[waiting]
        count = neighbours(row, state.times, state.placed, state.by_low)
        for at in range(count):
            state.by_top[at] = state.by_low[at]
        sort_by(state.lows, state.by_low, count)
        sort_by(state.tops, state.by_top, count)
        offset = cheapest_offset(state, row, count, target)
        if offset < 0:
            return -1
        waiting = take(state, row, count, offset, waiting)
    return waiting


@compiled
def cheapest_offset(state: EjectionState, row: int, count: int, target: int) -> int:
    """Where those in the way of a buffer weigh least: on top of one that it meets, or right below one; -1: nowhere."""
    size, alignment = state.sizes[row], state.alignments[row]
    best, least, ties = -1, NEVER, 1
    for below in range(2):
        below_them, above_them, cost = 0, 0, 0
        blocked = 0
        for at in range(count + 1):
            if below == 0:
                offset = 0 if at == 0 else -(-state.tops[state.by_top[at - 1]] // alignment) * alignment
            else:
                edge = target if at == count else min(target, state.lows[state.by_low[at]])
                offset = (edge - size) // alignment * alignment
            if offset < 0 or offset + size > target:
                continue
            # In its way is who begins below its end, less who ends below its begin.
            while below_them < count and state.lows[state.by_low[below_them]] < offset + size:
                other = state.by_low[below_them]
                cost += state.weights[other] * state.blame[other]
                blocked += state.fixed[other] >= 0
                below_them += 1
            while above_them < count and state.tops[state.by_top[above_them]] <= offset:
                other = state.by_top[above_them]
                cost -= state.weights[other] * state.blame[other]
                blocked -= state.fixed[other] >= 0
                above_them += 1
            if blocked > 0 or cost > least:
                continue
            if cost == 0:
                return offset
            ties = ties + 1 if cost == least else 1
            state.draw[0] = (state.draw[0] * MULTIPLIER + INCREMENT) & MASK
            if ties == 1 or (state.draw[0] >> 8) % ties == 0:
                best, least = offset, cost
    return best


@compiled
def take(state: EjectionState, row: int, count: int, offset: int, waiting: int) -> int:
    """Put a buffer at an offset; whoever is in its way waits. Returns how many wait."""
    top, before = offset + state.sizes[row], waiting
    for at in range(count):
        other = state.by_low[at]
        if state.lows[other] < top and state.tops[other] > offset:
            state.placed[other] = 0
            state.waiting[waiting] = other
            waiting += 1
    if waiting > before and state.blame[row] < MOST_BLAME:
        state.blame[row] += 1
    state.lows[row], state.tops[row], state.placed[row] = offset, top, 1
    return waiting
