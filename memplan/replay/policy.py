"""How the CUDA caching allocator is configured, and its constants: all that decides what it reserves."""

from dataclasses import dataclass
from typing import Final

from memplan.units import GIB, MIB, Bytes

# c10/core/AllocatorConfig.h and c10/cuda/CUDACachingAllocator.cpp of torch 2.13.0.
MIN_BLOCK: Final = 512
"""Every size is rounded up to it (``kMinBlockSize``)."""
SMALL_SIZE: Final = MIB
"""Largest rounded size in the small pool, and largest rest that the large pool leaves on a block (``kSmallSize``)."""
SMALL_SEGMENT: Final = 2 * MIB
"""Segments of the small pool (``kSmallBuffer``)."""
MIN_LARGE_ALLOCATION: Final = 10 * MIB
"""Smaller requests of the large pool share segments of ``large_segment_size`` (``kMinLargeAlloc``)."""
ROUND_LARGE: Final = 2 * MIB
"""Larger ones get a segment of their own, rounded up to it (``kRoundLarge``)."""
LARGE_SEGMENT: Final = Bytes(20 * MIB)
"""Default of ``large_segment_size_mb`` (``large_segment_size_``)."""
NOTHING: Final = Bytes(0)
"""Default of ``pinned_reserve_segment_size_mb`` (``m_pinned_reserve_segment_size_mb``)."""
ROUNDUP_START: Final = MIB
"""Sizes below it use the first entry of ``roundup_power2_divisions`` (``kRoundUpPowerOfTwoStart``)."""
ROUNDUP_INTERVALS: Final = 16
"""Entries of ``roundup_power2_divisions``, one per power of two (``kRoundUpPowerOfTwoIntervals``)."""
ADDRESS_SPACE_SHARE: Final = (9, 8)
"""Address space of an expandable segment over device memory (``ExpandableSegment::ExpandableSegment``)."""
UNLIMITED_ADDRESS_SPACE: Final = 1 << 13
"""GiB of address space of an expandable segment where no device size is known: memplan's own, beyond any device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedPolicy:
    """Options of the host's allocator for pinned memory; the defaults are PyTorch's."""

    max_round_threshold: Bytes | None = None
    """Largest request that is rounded up to a power of two (``pinned_max_round_threshold_mb``); None rounds all."""
    max_cached_size: Bytes | None = None
    """Largest block that is kept once free, or rounded (``pinned_max_cached_size_mb``); None keeps all."""
    reserve_segment_size: Bytes = NOTHING
    """Memory pinned at once with the first request, and handed out piece by piece (``pinned_reserve_segment_size_mb``);
    0 pins none."""

    def round_size(self, nbytes: int) -> int:
        """Size of the block that serves a request of ``nbytes`` > 0."""
        bounds = (self.max_round_threshold, self.max_cached_size)
        if any(bound is not None and nbytes > bound for bound in bounds):
            return nbytes
        return 1 << (nbytes - 1).bit_length()


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorPolicy:
    """The native caching allocator's options; the defaults are PyTorch's."""

    roundup_power2_divisions: tuple[int, ...] = (0,) * ROUNDUP_INTERVALS
    """Steps between powers of two that sizes are rounded up to, from 1 MiB, 2 MiB … 32 GiB on; 0 and 1: 512 bytes."""
    max_split_size: Bytes | None = None
    """Blocks of at least this size are neither split nor given to smaller requests; None splits every size."""
    max_non_split_rounding: Bytes = LARGE_SEGMENT
    """How much larger than the request an unsplittable block may be."""
    garbage_collection_threshold: float = 0.0
    """Share of the allowed memory above which old cached blocks are released; 0 never does.

    PyTorch heeds it only where ``per_process_memory_fraction`` is below 1.
    """
    expandable_segments: bool = False
    """One growing segment for each stream and pool."""
    large_segment_size: Bytes = LARGE_SEGMENT
    """Segment shared by requests between 1 MiB and 10 MiB, and unit of growth of large expandable segments."""
    per_process_memory_fraction: float = 1.0
    """Share of the device that the process may reserve; 1 sets no limit."""
    throw_on_cudamalloc_oom: bool = False
    """Fail before asking the device for more than that share, without releasing cached blocks first."""
    pinned: PinnedPolicy = PinnedPolicy()
    """What the same options say about pinned host memory, which is another allocator's (``memplan.replay.pinned``)."""

    def round_size(self, nbytes: int) -> int:
        """Size of the smallest block that serves a request of ``nbytes`` > 0 (``round_size``)."""
        divisions = self.roundup_power2_divisions[_interval(nbytes)]
        if divisions > 1 and nbytes > MIN_BLOCK * divisions:
            return _next_division(nbytes, divisions)
        return -(-nbytes // MIN_BLOCK) * MIN_BLOCK

    def segment_size(self, size: int) -> int:
        """Bytes asked of the device for a block of ``size`` rounded bytes (``get_allocation_size``)."""
        if size <= SMALL_SIZE:
            return SMALL_SEGMENT
        if size < MIN_LARGE_ALLOCATION:
            return self.large_segment_size
        return -(-size // ROUND_LARGE) * ROUND_LARGE

    def unit(self, small: bool) -> int:
        """Bytes that an expandable segment grows and shrinks by (``ExpandableSegment::segment_size_``)."""
        return SMALL_SEGMENT if small else self.large_segment_size

    def address_space(self, small: bool, device_bytes: int | None) -> int:
        """Bytes of address space of one expandable segment, a multiple of its unit."""
        unit = self.unit(small)
        share, whole = ADDRESS_SPACE_SHARE
        wanted = UNLIMITED_ADDRESS_SPACE * GIB if device_bytes is None else device_bytes * share // whole
        return -(-wanted // unit) * unit


def _interval(nbytes: int) -> int:
    return min(max(nbytes.bit_length() - ROUNDUP_START.bit_length(), 0), ROUNDUP_INTERVALS - 1)


def _next_division(nbytes: int, divisions: int) -> int:
    """Round up to the next of ``divisions`` steps between two powers of two (``roundup_power2_next_division``)."""
    floor = 1 << (nbytes.bit_length() - 1)
    step = floor >> (divisions.bit_length() - 1)
    return -(-nbytes // step) * step
