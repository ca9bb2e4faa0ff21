"""A problem in the arrays that the search loops over."""

from itertools import chain
from typing import TYPE_CHECKING, cast

from memplan.plan.reuse.compiled import HAS_NUMBA
from memplan.plan.reuse.neighbours import meet
from memplan.plan.reuse.search_kernel import FRAME
from memplan.plan.reuse.search_records import SearchShape, SearchState
from memplan.plan.reuse.table import LARGEST, BufferTable, Whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_MEETINGS = 5_000_000
"""Meetings of two buffers, and buffers alive summed over moments, above which no search is begun: its arrays would take
seconds to fill, and each question a millisecond."""
FRAMES_PER_BUFFER = 8
"""Room on the stack: a frame per buffer that is placed, and some for floors on which nobody lies. A branch that needs
more is given up, and nothing is proved then."""
CHOICES_PER_FRAME = 16
"""The same for answers: of the buffers of a section, few can lie on its floor."""
TRAIL_PER_BUFFER = 200
"""The same for the trail, above what placing every buffer once needs."""


def is_small(table: BufferTable) -> bool:
    """Return whether the arrays would fit memory."""
    times = table.times
    alive = int((times.stretch_ends - times.stretch_starts).sum())
    meetings = int((times.begun[times.ends] - times.begun[times.starts]).sum())
    return max(alive, 2 * meetings) <= MOST_MEETINGS


def free_rows(table: BufferTable) -> list[int]:
    """Rows of the table that are to be placed; their positions in this list are the buffers of the search."""
    return [row for row, offset in enumerate(table.fixed) if offset < 0]


def shape_of(table: BufferTable) -> SearchShape:
    """The arrays of a problem; its fixed buffers become walls of those they meet."""
    rows = free_rows(table)
    fixed = [int(row) for row in table.fixed.argsort(kind="stable") if table.fixed[row] >= 0]
    position = {row: k for k, row in enumerate(rows)}
    met = [_met(table, row) for row in rows]
    sections = [_moments(table, row) for row in rows]
    members: list[list[int]] = [[] for _ in table.loads]
    for k, own in enumerate(sections):
        for moment in own:
            members[moment].append(k)
    walls = [[wall for wall in fixed if wall in own] for own in (map(set, met) if fixed else met)]
    section_start, section = _flat(sections)
    member_start, member = _flat(members)
    neighbour_start, neighbour = _flat([[position[row] for row in own if row in position] for own in met])
    wall_start, wall = _flat(walls)
    return SearchShape(
        size=whole(table.sizes[row] for row in rows),
        alignment=whole(table.alignments[row] for row in rows),
        first=whole(own[0] for own in sections),
        last=whole(own[-1] for own in sections),
        section_start=section_start,
        section=section,
        member_start=member_start,
        member=member,
        neighbour_start=neighbour_start,
        neighbour=neighbour,
        wall_start=wall_start,
        wall_low=whole(table.fixed[row] for row in wall),
        wall_high=whole(table.fixed[row] + table.sizes[row] for row in wall),
        nowhere=LARGEST,
    )


def state_of(shape: SearchShape) -> SearchState:
    """Room for a search; ``begin`` makes it ready."""
    count, sections = len(shape.size), len(shape.member_start) - 1
    frames = FRAMES_PER_BUFFER * count + 16
    # The floors are written once by ``begin``.
    trail = 4 * len(shape.neighbour) + TRAIL_PER_BUFFER * (count + sections) + sections + 1
    return SearchState(
        offset=_zeros(count),
        bound=_zeros(2 * count + sections),
        rest=_zeros(sections),
        waiting=_zeros(sections),
        crossing=_zeros(sections),
        mark=_zeros(count),
        trail_place=_zeros(trail),
        trail_value=_zeros(trail),
        frame=_zeros(FRAME * frames),
        choice=_zeros(CHOICES_PER_FRAME * frames + count),
        control=_zeros(4),
    )


def whole(values: "Iterable[int]") -> Whole:
    """An array where loops are compiled; a list, which Python reads three times as fast, where they are not."""
    import numpy as np

    listed = [int(value) for value in values]
    return np.array(listed, dtype=np.int64) if HAS_NUMBA else cast("Whole", listed)


def _zeros(length: int) -> Whole:
    import numpy as np

    return np.zeros(length, dtype=np.int64) if HAS_NUMBA else cast("Whole", [0] * length)


def _flat(rows: "Sequence[Sequence[int]]") -> tuple[Whole, Whole]:
    starts = [0]
    for row in rows:
        starts.append(starts[-1] + len(row))
    return whole(starts), whole(chain.from_iterable(rows))


def _moments(table: BufferTable, row: int) -> list[int]:
    times = table.times
    stretches = range(times.first[row], times.first[row + 1])
    return [moment for k in stretches for moment in range(times.stretch_starts[k], times.stretch_ends[k])]


def _met(table: BufferTable, row: int) -> list[int]:
    """Rows alive together with one."""
    times = table.times
    hulls = (times.starts < times.ends[row]) & (times.ends > times.starts[row])
    hulls[row] = False
    others: list[int] = hulls.nonzero()[0].tolist()
    if len(times.stretch_starts) == len(times.starts):
        return others
    return [other for other in others if meet(row, other, times)]
