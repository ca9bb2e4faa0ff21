"""Memory in slots: bytes as multiples of one unit, for tables that have a place for every amount."""

from collections.abc import Sequence
from dataclasses import dataclass

SLOTS = 2000
"""Slots at most for what a plan can change: with 96 blocks a table of 150 MB, filled in about a second."""
FLAT_SLOTS = 50_000
"""Where there are no segments, whose tables grow with the square of the blocks: with 96 of them 40 MB."""
_UNITS = 250
"""Units that are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGrid:
    """A unit, and what it rounds away. What stays alive is rounded up."""

    unit: int
    """Bytes of a slot."""
    lost: float
    """Slots that rounding takes at most from any one choice."""

    def up(self, size: int) -> int:
        """Slots that so many bytes take."""
        return -(-size // self.unit)


def slots_for(extent: int, groups: Sequence[Sequence[int]], most: int) -> MemoryGrid:
    """The unit that rounds least.

    Args:
        extent: Bytes that there must be slots for.
        groups: Sizes of which at most one of each group is alive.
        most: Slots that there may be.
    """
    best: MemoryGrid | None = None
    distinct = [frozenset(group) for group in groups]
    for unit in sorted({max(1, -(-extent // slots)) for slots in range(most // 2, most + 1, most // 2 // _UNITS)}):
        losses = {group: max((-size % unit for size in group), default=0) / unit for group in set(distinct)}
        found = MemoryGrid(unit=unit, lost=sum(losses[group] for group in distinct))
        if best is None or found.lost < best.lost:
            best = found
    return best or MemoryGrid(unit=1, lost=0.0)
