"""One buffer after another into the lowest or the tightest gap between those that it meets."""

from typing import NamedTuple

from memplan.plan.reuse.compiled import HAS_NUMBA, compiled
from memplan.plan.reuse.neighbours import meet, neighbours, sort_by
from memplan.plan.reuse.table import BufferTable, Times, Whole


class Room(NamedTuple):
    """A problem's arrays and scratch space; a tuple, for compiled loops take tuples."""

    times: Times
    """Lifespans."""
    sizes: Whole
    """Bytes per row."""
    alignments: Whole
    """Per row."""
    fixed: Whole
    """Offset per row that is given; -1 where it is free."""
    lows: Whole
    """Offset per row, for those that are placed."""
    tops: Whole
    """End per row, for those that are placed."""
    placed: Whole
    """Per row: 1 where it has a place."""
    near: Whole
    """Room for all rows."""


def place_in_order(table: BufferTable, order: Whole, *, tightest: bool) -> Whole:
    """Offsets per row.

    Rows of fixed offset come first wherever they stand. ``tightest`` takes the tightest gap rather than the lowest; of
    equally tight ones the lowest.
    """
    import numpy as np

    order = np.concatenate((order[table.fixed[order] >= 0], order[table.fixed[order] < 0]))
    lows, tops, placed, near = (np.zeros(len(order), dtype=np.int64) for _ in range(4))
    room = Room(table.times, table.sizes, table.alignments, table.fixed, lows, tops, placed, near)
    (place_rows if HAS_NUMBA else place_rows_by_arrays)(order, room, tightest)
    return lows


@compiled
def place_rows(order: Whole, room: Room, tightest: bool) -> None:
    """Find all offsets with loops."""
    for row in order:
        if room.fixed[row] >= 0:
            room.lows[row] = room.fixed[row]
        else:
            count = neighbours(row, room.times, room.placed, room.near)
            sort_by(room.lows, room.near, count)
            room.lows[row] = gap_for(row, room, count, tightest)
        room.tops[row] = room.lows[row] + room.sizes[row]
        room.placed[row] = 1


@compiled
def gap_for(row: int, room: Room, count: int, tightest: bool) -> int:
    """Offset of one among the first ``count`` of the near, which are sorted by where they begin."""
    offset, best, least = 0, -1, 0
    for at in range(count):
        other = room.near[at]
        gap = room.lows[other] - offset
        if gap >= room.sizes[row] and (best < 0 or gap < least):
            best, least = offset, gap
            if not tightest:
                return best
        # Those that do not meet one another in time may lie at the same height: a gap begins above all so far.
        if room.tops[other] > offset:
            offset = -(-room.tops[other] // room.alignments[row]) * room.alignments[row]
    return offset if best < 0 else best


def place_rows_by_arrays(order: Whole, room: Room, tightest: bool) -> None:
    """Find the same offsets with a few operations on arrays per buffer, for where loops are not compiled."""
    for row in order:
        if room.fixed[row] >= 0:
            room.lows[row] = room.fixed[row]
        else:
            near = _neighbours(row, room)
            room.lows[row] = _gap(row, room, near[room.lows[near].argsort(kind="stable")], tightest)
        room.tops[row] = room.lows[row] + room.sizes[row]
        room.placed[row] = 1


def _neighbours(row: int, room: Room) -> Whole:
    import numpy as np

    times, start = room.times, room.times.starts[row]
    block = start // times.stride
    since = np.arange(times.begun[block * times.stride], times.begun[times.ends[row]])
    all_near = np.concatenate((times.alive[times.alive_first[block] : times.alive_first[block + 1]], since))
    near: Whole = all_near[(room.placed[all_near] != 0) & (times.ends[all_near] > start)]
    if len(times.stretch_starts) == len(times.starts):
        return near
    found: Whole = near[np.array([meet(row, other, times) for other in near], dtype=bool)]
    return found


def _gap(row: int, room: Room, near: Whole, tightest: bool) -> int:
    import numpy as np

    alignment = room.alignments[row]
    tops = -(-np.maximum.accumulate(room.tops[near]) // alignment) * alignment
    offsets = np.concatenate((np.zeros(1, dtype=np.int64), tops))
    gaps = room.lows[near] - offsets[:-1]
    fitting = np.flatnonzero(gaps >= room.sizes[row])
    if not len(fitting):
        return int(offsets[-1])
    return int(offsets[fitting[gaps[fitting].argmin()] if tightest else fitting[0]])
