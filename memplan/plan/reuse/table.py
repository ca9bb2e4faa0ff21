"""A problem as arrays: moments collapsed to those at which most is alive, buffers in an order of their own.

The order depends on what the buffers are, not on how the file or trace lists them: whoever works on the table finds the
same placement for every permutation.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from memplan.errors import UsageError
from memplan.plan.reuse.bound import stretches
from memplan.plan.reuse.decompose import placed
from memplan.plan.reuse.records import ArenaBuffer, ArenaPlacement, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    Whole = np.ndarray[Any, np.dtype[np.int64]]
else:
    Whole = Any

Spans = tuple[tuple[int, int], ...]
"""Half-open stretches of one buffer."""

BLOCKS = 256
"""Moments for which it is written down who is alive: what is gathered for others is that and what has begun since."""
LARGEST = 2**62
"""No sum of sizes and paddings passes it, so that no offset leaves 64 bits."""


class Times(NamedTuple):
    """Lifespans of buffers in order of their start; a tuple, for compiled loops take tuples."""

    starts: Whole
    """Per buffer: first moment at which its bytes are its own."""
    ends: Whole
    """Per buffer: first moment from which on they are not."""
    first: Whole
    """Per buffer: its first stretch; and one more."""
    stretch_starts: Whole
    """Per stretch."""
    stretch_ends: Whole
    """Per stretch."""
    begun: Whole
    """Per moment: how many buffers started before; and one more."""
    alive_first: Whole
    """Per block of moments: where its list begins; and one more."""
    alive: Whole
    """Lists of who started before a block and is there in it."""
    stride: int
    """Moments per block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferTable:
    """Buffers that have bytes at some moment."""

    problem: Problem
    """What was given."""
    indices: tuple[int, ...]
    """Per row: the buffer in the problem."""
    times: Times
    """Lifespans."""
    sizes: Whole
    """Bytes per row."""
    alignments: Whole
    """Per row."""
    fixed: Whole
    """Offset per row that is given; -1 where it is free."""
    loads: Whole
    """Bytes alive per moment."""

    def placement(self, lows: "Sequence[int] | Whole") -> ArenaPlacement:
        """Offsets per row as a placement of the problem."""
        offsets = [buffer.offset or 0 for buffer in self.problem.buffers]
        for index, low in zip(self.indices, lows, strict=True):
            offsets[index] = int(low)
        return placed(self.problem.buffers, offsets)


def table_of(problem: Problem) -> BufferTable:
    """The arrays of a problem.

    Raises:
        UsageError: The offsets may need more than 64 bits.
    """
    import numpy as np

    _check_numbers(problem)
    spans = {i: tuple(stretches(buffer)) for i, buffer in enumerate(problem.buffers) if buffer.size}
    indices = sorted((i for i in spans if spans[i]), key=lambda i: _key(problem.buffers[i], spans[i]))
    rows = _collapsed([spans[i] for i in indices])
    buffers = [problem.buffers[i] for i in indices]
    sizes = np.array([buffer.size for buffer in buffers], dtype=np.int64)
    return BufferTable(
        problem=problem,
        indices=tuple(indices),
        times=_times(rows),
        sizes=sizes,
        alignments=np.array([buffer.alignment for buffer in buffers], dtype=np.int64),
        fixed=np.array([-1 if buffer.offset is None else buffer.offset for buffer in buffers], dtype=np.int64),
        loads=_loads(rows, sizes),
    )


def _check_numbers(problem: Problem) -> None:
    free = sum(buffer.size + buffer.alignment for buffer in problem.buffers)
    fixed = max((buffer.offset for buffer in problem.buffers if buffer.offset is not None), default=0)
    if free + fixed >= LARGEST:
        raise UsageError(f"{free + fixed} bytes in all are more than offsets of 64 bits can tell apart")


def _key(buffer: ArenaBuffer, spans: Spans) -> tuple[object, ...]:
    fixed = -1 if buffer.offset is None else buffer.offset
    return spans[0][0], spans[-1][1], buffer.size, buffer.alignment, fixed, spans, buffer.name


def _collapsed(rows: "Sequence[Spans]") -> list[Spans]:
    """The same meetings over fewer moments: one per run of begins that no end interrupts."""
    # An end comes before a begin at its moment.
    events = sorted({(moment, begins) for spans in rows for span in spans for begins, moment in enumerate(span[::-1])})
    at: dict[tuple[int, int], int] = {}
    moment, interrupted = -1, True
    for event in events:
        begins = event[1]
        if begins and interrupted:
            moment += 1
        at[event] = moment + 1 - begins
        interrupted = not begins
    return [tuple((at[start, 1], at[end, 0]) for start, end in spans) for spans in rows]


def _times(rows: "Sequence[Spans]") -> Times:
    import numpy as np

    starts = np.array([spans[0][0] for spans in rows], dtype=np.int64)
    ends = np.array([spans[-1][1] for spans in rows], dtype=np.int64)
    moments = int(ends.max(initial=0))
    stride = max(1, -(-moments // BLOCKS))
    lists = [np.flatnonzero((starts < block) & (ends > block)) for block in range(0, moments, stride)]
    return Times(
        starts=starts,
        ends=ends,
        first=np.cumsum([0, *(len(spans) for spans in rows)], dtype=np.int64),
        stretch_starts=np.array([start for spans in rows for start, _ in spans], dtype=np.int64),
        stretch_ends=np.array([end for spans in rows for _, end in spans], dtype=np.int64),
        begun=np.searchsorted(starts, np.arange(moments + 1)).astype(np.int64),
        alive_first=np.cumsum([0, *(len(rows) for rows in lists)], dtype=np.int64),
        alive=np.concatenate([np.zeros(0, dtype=np.int64), *lists]),
        stride=stride,
    )


def _loads(rows: "Sequence[Spans]", sizes: Whole) -> Whole:
    import numpy as np

    changes = np.zeros(1 + max((spans[-1][1] for spans in rows), default=0), dtype=np.int64)
    for spans, size in zip(rows, sizes, strict=True):
        for start, end in spans:
            changes[start] += size
            changes[end] -= size
    return np.cumsum(changes)[:-1]
