"""What an allocator makes of a stream of requests."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from memplan.units import Bytes


class Request(NamedTuple):
    """One line of an allocation stream."""

    action: Literal["alloc", "free"]
    """What happens."""
    key: int
    """Identity of the allocation within the stream."""
    nbytes: int
    """Requested bytes (ignored for a free)."""
    stream: int
    """CUDA stream (ignored for a free)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """A request that the device could not serve, after all that the allocator tries."""

    rounded: Bytes
    """Size of the block that the request needed."""
    wanted: Bytes
    """Bytes that the device was asked for."""
    allocated: Bytes
    """Bytes in live blocks at that moment."""
    reserved: Bytes
    """Bytes in segments at that moment, when everything cached had been released."""
    stream: int
    """CUDA stream of the request."""
    event: int = -1
    """Index in the stream of the event that failed; -1 outside a replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLayout:
    """One block of a segment."""

    address: int
    """Where it starts."""
    size: Bytes
    """Its length."""
    requested: Bytes
    """Bytes asked for; 0 for a free block."""
    state: Literal["allocated", "pending", "free"]
    """``pending``: freed, but another stream may still use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLayout:
    """One segment, or one contiguous mapped stretch of an expandable one."""

    address: int
    """Where it starts."""
    size: Bytes
    """Its length."""
    stream: int
    """CUDA stream it belongs to."""
    small: bool
    """Does it belong to the small pool?"""
    blocks: tuple[BlockLayout, ...]
    """What it is divided into, in address order."""
    expandable: bool = False
    """Is it a part of an expandable segment?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLayout:
    """An allocator's whole state, with the totals that it keeps."""

    segments: tuple[SegmentLayout, ...]
    """All segments in address order."""
    requested: Bytes
    """Bytes asked for and alive."""
    allocated: Bytes
    """Bytes in live blocks."""
    reserved: Bytes
    """Bytes in segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryProfile:
    """Peaks and state of an allocator after replaying a stream."""

    peak_requested: Bytes
    """Most bytes asked for and alive at once."""
    peak_allocated: Bytes
    """Most bytes in live blocks at once: requests rounded, unsplittable rests included."""
    peak_reserved: Bytes
    """Most bytes in segments at once."""
    peak_allocated_at: int
    """Index in the stream of the event at which ``peak_allocated`` is first reached."""
    peak_reserved_at: int
    """Likewise for ``peak_reserved``."""
    allocated_at_reserved_peak: Bytes
    """Bytes in live blocks when ``peak_reserved`` is first reached."""
    requested_at_reserved_peak: Bytes
    """Bytes asked for and alive at that moment."""
    end_reserved: Bytes
    """Bytes in segments at the end."""
    steps_replayed: int
    """Optimizer steps replayed until the allocator's state repeated."""
    segments: int
    """Number of segments at the end."""
    settled: bool = True
    """Did the allocator's state repeat? False where steps were cut short by ``max_steps`` or by a full device."""
    retries: int = 0
    """Times that all cached memory was released to serve one request (``num_alloc_retries``)."""
    out_of_memory: OutOfMemory | None = None
    """The request at which the replay ended early, if one could not be served. Peaks then cover what came before."""

    @property
    def external_fragmentation(self) -> float:
        """Share of reserved bytes in no live block, at the reserved peak."""
        return 1 - self.allocated_at_reserved_peak / self.peak_reserved if self.peak_reserved else 0.0

    @property
    def internal_fragmentation(self) -> float:
        """Share of bytes in live blocks that nobody asked for, at the reserved peak."""
        if not self.allocated_at_reserved_peak:
            return 0.0
        return 1 - self.requested_at_reserved_peak / self.allocated_at_reserved_peak
