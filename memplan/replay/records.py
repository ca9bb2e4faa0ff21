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
