"""PyTorch's allocators with their calls to the device counted, from outside: nothing of their behaviour changes."""

from collections.abc import Mapping
from typing import Protocol

from memplan.replay.blocks import Block
from memplan.replay.caching import CachingAllocator, bump_addresses
from memplan.replay.expandable import ExpandableAllocator
from memplan.replay.policy import SMALL_SEGMENT, SMALL_SIZE, AllocatorPolicy
from memplan.replay.records import DEFAULT_POOL, OutOfMemory
from memplan.replay.static_plan import PlannedAllocator
from memplan.simulate.records import DeviceCalls


class Simulated(Protocol):
    """What a simulation needs of an allocator: a replay's interface, and counters."""

    @property
    def failure(self) -> OutOfMemory | None:
        """Why the last ``allocate`` returned None."""

    @property
    def requested(self) -> int:
        """Bytes asked for and alive."""

    @property
    def allocated(self) -> int:
        """Bytes in live blocks."""

    @property
    def reserved(self) -> int:
        """Bytes held of the device."""

    @property
    def retries(self) -> int:
        """Times that the whole cache was given back to serve one request."""

    @property
    def device_allocations(self) -> int:
        """``cudaMalloc`` calls."""

    @property
    def device_frees(self) -> int:
        """``cudaFree`` calls."""

    @property
    def maps(self) -> int:
        """Units mapped."""

    @property
    def unmaps(self) -> int:
        """Units unmapped."""

    @property
    def moved_bytes(self) -> int:
        """Bytes of live blocks moved."""

    def allocate(self, nbytes: int, stream: int) -> Block | None:
        """Serve a request; None, with ``failure`` set, if that is impossible."""

    def free(self, block: Block) -> None:
        """Take a live block back."""

    def fingerprint(self, live: Mapping[int, Block]) -> tuple[object, ...]:
        """What decides its future, with the live blocks that will be freed by name."""

    def largest_free(self) -> int:
        """Largest block to be had without the device's help."""


def calls_of(allocator: Simulated, requests: int) -> DeviceCalls:
    """All that an allocator did so far, and the requests that it served."""
    return DeviceCalls(
        requests=requests,
        allocations=allocator.device_allocations,
        frees=allocator.device_frees,
        maps=allocator.maps,
        unmaps=allocator.unmaps,
        retries=allocator.retries,
        moved_bytes=allocator.moved_bytes,
    )


class MeteredCaching(CachingAllocator):
    """``CachingAllocator`` with its ``cudaMalloc`` and ``cudaFree`` calls counted."""

    maps = unmaps = moved_bytes = 0

    def __init__(self, policy: AllocatorPolicy, *, limit_bytes: int | None, device_bytes: int | None) -> None:
        self.device_allocations = 0
        """Segments taken."""
        bump = bump_addresses()

        def place(nbytes: int) -> int:
            self.device_allocations += 1
            return bump(nbytes)

        super().__init__(policy, limit_bytes=limit_bytes, device_bytes=device_bytes, place=place)

    @property
    def device_frees(self) -> int:
        """Segments given back: those taken that are no longer there."""
        return self.device_allocations - self.segments

    def largest_free(self) -> int:
        """Largest cached block."""
        return _largest_free(self)


class MeteredExpandable(ExpandableAllocator):
    """``ExpandableAllocator`` with the units that it maps and unmaps counted."""

    device_allocations = device_frees = moved_bytes = 0

    def __init__(self, policy: AllocatorPolicy, *, limit_bytes: int | None, device_bytes: int | None) -> None:
        super().__init__(policy, limit_bytes=limit_bytes, device_bytes=device_bytes)
        self.maps = 0
        """Units mapped."""
        self.unmaps = 0
        """Units unmapped; where both pools were flushed at once, the fewest that make up the bytes."""
        self._rules, self._unit_bytes = policy, policy.large_segment_size
        self._flushed = 0

    def allocate(self, nbytes: int, stream: int) -> Block | None:
        """Serve a request."""
        before, self._flushed = self.reserved, 0
        block = super().allocate(nbytes, stream)
        if self.reserved != before or self._flushed:
            unit = SMALL_SEGMENT if self._rules.round_size(nbytes) <= SMALL_SIZE else self._unit_bytes
            self.maps += -(-(self.reserved - before + self._flushed) // unit)
        return block

    def empty_cache(self, owner: int = DEFAULT_POOL) -> None:
        """Unmap what lies wholly in free blocks."""
        before = self.reserved
        super().empty_cache(owner)
        released = before - self.reserved
        self._flushed += released
        large, rest = divmod(released, self._unit_bytes)
        self.unmaps += large + -(-rest // SMALL_SEGMENT)

    def largest_free(self) -> int:
        """Largest mapped free block."""
        return _largest_free(self)


class MeteredPlanned(PlannedAllocator):
    """``PlannedAllocator`` beside an expandable segment, with the calls of both counted.

    Args:
        arena_bytes: Size of the arena.
        limit_bytes: Memory that the device can give; None for no limit.
        device_bytes: Total memory of the device.
    """

    moved_bytes = device_frees = 0

    def __init__(self, *, arena_bytes: int, limit_bytes: int | None, device_bytes: int | None) -> None:
        rest = None if limit_bytes is None else max(0, limit_bytes - arena_bytes)
        policy = AllocatorPolicy(expandable_segments=True)
        self._metered = MeteredExpandable(policy, limit_bytes=rest, device_bytes=device_bytes)
        super().__init__(self._metered, arena_bytes=arena_bytes, limit_bytes=limit_bytes)

    @property
    def device_allocations(self) -> int:
        """The arena, once it is taken."""
        return self.segments - self._metered.segments

    @property
    def maps(self) -> int:
        """Units mapped beside the arena."""
        return self._metered.maps

    @property
    def unmaps(self) -> int:
        """Units unmapped beside the arena."""
        return self._metered.unmaps

    def largest_free(self) -> int:
        """Largest mapped free block beside the arena."""
        return self._metered.largest_free()


def _largest_free(allocator: CachingAllocator) -> int:
    segments = allocator.layout().segments
    return max((block.size for segment in segments for block in segment.blocks if block.state == "free"), default=0)
