"""A placement as a coarse grid: how full each cell of time and offset is, and whose bytes fill most of it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from memplan.plan.reuse.bound import stretches
from memplan.plan.reuse.records import ArenaBuffer, ArenaPlacement


@dataclass(frozen=True, slots=True, kw_only=True)
class RasterCell:
    """One cell of the grid."""

    share: float
    """Of its area that some buffer covers, from 0 to 1."""
    label: str
    """Whose buffers cover most of it; empty where nothing does."""


def raster(
    buffers: Sequence[ArenaBuffer],
    placement: ArenaPlacement,
    labels: Sequence[str],
    *,
    columns: int,
    rows: int,
    height: int,
) -> list[list[RasterCell]]:
    """Draw a placement into cells, rows from the lowest offset up.

    Columns go from the first birth to the last end, the topmost row ends at ``height``. Without labels nothing is known
    of what buffers hold.
    """
    first = min((buffer.start for buffer in buffers), default=0)
    width = max((buffer.end for buffer in buffers), default=1) - first
    area: defaultdict[tuple[int, int], defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for index, (buffer, offset) in enumerate(zip(buffers, placement.offsets, strict=True)):
        label = labels[index] if labels else ""
        across = _covered(offset / height * rows, (offset + buffer.size) / height * rows, rows)
        for start, end in stretches(buffer):
            along = _covered((start - first) / width * columns, (end - first) / width * columns, columns)
            for row, high in across:
                for column, wide in along:
                    area[row, column][label] += high * wide
    return [[_cell(area.get((row, column), {})) for column in range(columns)] for row in range(rows)]


def _covered(start: float, end: float, cells: int) -> list[tuple[int, float]]:
    """Cells that ``[start, end)`` meets, and how much of each it covers."""
    return [
        (cell, min(end, cell + 1) - max(start, cell))
        for cell in range(int(start), min(cells, int(end) + 1))
        if min(end, cell + 1) > max(start, cell)
    ]


def _cell(shares: dict[str, float]) -> RasterCell:
    if not shares:
        return RasterCell(share=0.0, label="")
    return RasterCell(share=min(1.0, sum(shares.values())), label=max(shares, key=lambda label: shares[label]))
