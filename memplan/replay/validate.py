"""Checks an allocator's state from its layout alone; shares no code with the allocators."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from memplan.replay.records import BlockLayout, MemoryLayout, SegmentLayout
from memplan.units import format_bytes


class Fault(StrEnum):
    """What can be wrong with a layout."""

    OVERLAP = "overlap"
    """Two segments share addresses."""
    GAP = "gap"
    """Blocks do not tile their segment."""
    EMPTY = "empty"
    """A block or segment without bytes."""
    MISALIGNED = "misaligned"
    """A block that does not start and end on 512 bytes."""
    UNMERGED = "unmerged"
    """Two free neighbours."""
    OVERFULL = "overfull"
    """More bytes asked for than the block has, or any in a free one."""
    UNASKED = "unasked"
    """A live block that nobody asked a byte of."""
    TOTAL = "total"
    """A total that differs from the sum over blocks or segments."""
    OVER_LIMIT = "over_limit"
    """More reserved than the device has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One thing that is wrong, and where."""

    fault: Fault
    """What."""
    address: int
    """Where; 0 for totals."""
    detail: str
    """Figures for a reader."""


def validate(layout: MemoryLayout, *, limit_bytes: int | None = None) -> tuple[Violation, ...]:
    """Name everything that is wrong with an allocator's state, in order of address, totals last."""
    return (
        *_overlaps(layout),
        *(violation for segment in layout.segments for violation in _segment_faults(segment)),
        *_total_faults(layout, limit_bytes),
    )


def _overlaps(layout: MemoryLayout) -> Iterator[Violation]:
    for left, right in pairwise(sorted(layout.segments, key=lambda segment: segment.address)):
        if left.address + left.size > right.address:
            yield Violation(
                fault=Fault.OVERLAP, address=right.address, detail=f"segment at {left.address} reaches into it"
            )


def _segment_faults(segment: SegmentLayout) -> Iterator[Violation]:
    if not segment.blocks:
        yield Violation(fault=Fault.EMPTY, address=segment.address, detail="segment without blocks")
    expected = segment.address
    for block in segment.blocks:
        if block.address != expected:
            yield Violation(fault=Fault.GAP, address=block.address, detail=f"the block before ends at {expected}")
        yield from _block_faults(block)
        expected = block.address + block.size
    if expected != segment.address + segment.size:
        yield Violation(fault=Fault.GAP, address=expected, detail=f"segment ends at {segment.address + segment.size}")
    for left, right in pairwise(segment.blocks):
        if left.state == right.state == "free":
            yield Violation(
                fault=Fault.UNMERGED, address=right.address, detail=f"free like its neighbour {left.address}"
            )


def _block_faults(block: BlockLayout) -> Iterator[Violation]:
    if block.size <= 0:
        yield Violation(fault=Fault.EMPTY, address=block.address, detail=f"{block.size} bytes")
    if block.size % 512 or block.address % 512:
        yield Violation(fault=Fault.MISALIGNED, address=block.address, detail=f"{block.size} bytes")
    room = 0 if block.state == "free" else block.size
    if block.requested > room:
        detail = f"{block.requested} bytes asked of {room}"
        yield Violation(fault=Fault.OVERFULL, address=block.address, detail=detail)
    if block.state != "free" and block.requested <= 0:
        yield Violation(fault=Fault.UNASKED, address=block.address, detail=f"{block.size} live bytes")


def _total_faults(layout: MemoryLayout, limit_bytes: int | None) -> Iterator[Violation]:
    live = [block for segment in layout.segments for block in segment.blocks if block.state != "free"]
    sums = (
        ("requested", layout.requested, sum(block.requested for block in live)),
        ("allocated", layout.allocated, sum(block.size for block in live)),
        ("reserved", layout.reserved, sum(segment.size for segment in layout.segments)),
    )
    for name, claimed, found in sums:
        if claimed != found:
            yield Violation(fault=Fault.TOTAL, address=0, detail=f"{name} is {claimed}, its parts sum to {found}")
    if limit_bytes is not None and layout.reserved > limit_bytes:
        detail = f"{format_bytes(layout.reserved)} of {format_bytes(limit_bytes)}"
        yield Violation(fault=Fault.OVER_LIMIT, address=0, detail=detail)
