"""Offsets assigned beforehand: the n-th allocation of a step goes where the plan says; the rest is served online.

PyTorch cannot do this by an option; a memory pool of one's own, or a compiler, can. What the plan does not know, or
what comes out larger than planned, goes to PyTorch's own allocator beside the arena.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memplan.errors import MemplanError
from memplan.replay.blocks import ADDRESS_BITS, Block, Pool
from memplan.replay.caching import CachingAllocator
from memplan.replay.observer import Observer
from memplan.replay.policy import MIN_BLOCK, ROUND_LARGE
from memplan.replay.records import OutOfMemory
from memplan.units import Bytes

ARENA_ADDRESS: Final = 1 << (ADDRESS_BITS - 1)
"""Where the arena lies: beyond all that the online allocator takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Where one allocation goes."""

    offset: int
    """From the arena's start."""
    size: int
    """Bytes kept for it, a multiple of 512."""


Slots = Sequence[Slot | None]
"""One per allocation of a stretch of requests, in order; None is served online."""


class PlannedAllocator:
    """One device with an arena for planned blocks; the interface is ``memplan.replay.allocator.Allocator``'s.

    ``online`` serves what is not planned: empty, and limited to what the arena leaves of the device. The arena is taken
    from the device when the first planned block is needed.
    """

    moved_bytes = 0

    def __init__(self, online: CachingAllocator, *, arena_bytes: int, limit_bytes: int | None = None) -> None:
        self.online = online
        """Serves what is not planned."""
        self.failure: OutOfMemory | None = None
        """Why the last ``allocate`` returned None."""
        self._arena_bytes = -(-arena_bytes // ROUND_LARGE) * ROUND_LARGE
        self._arena_taken = 0
        self._limit = limit_bytes
        self._planned_requested = self._planned_allocated = self._live = 0
        self._arena = Pool(0, small=False)
        self._slots: Slots = ()
        self._next = 0

    @property
    def observers(self) -> Sequence[Observer]:
        """Told of the arena, and of what the online allocator takes and gives back."""
        return self.online.observers

    @observers.setter
    def observers(self, observers: Sequence[Observer]) -> None:
        self.online.observers = observers

    @property
    def requested(self) -> int:
        """Bytes asked for and alive."""
        return self._planned_requested + self.online.requested

    @property
    def allocated(self) -> int:
        """Bytes in live blocks."""
        return self._planned_allocated + self.online.allocated

    @property
    def reserved(self) -> int:
        """Bytes of the arena and of the online allocator's segments."""
        return self._arena_taken + self.online.reserved

    @property
    def retries(self) -> int:
        """Times that the online allocator gave its cache back to serve one request."""
        return self.online.retries

    @property
    def segments(self) -> int:
        """Number of segments, the arena included."""
        return self.online.segments + bool(self._arena_taken)

    def begin(self, slots: Slots) -> None:
        """Begin a stretch of requests whose allocations go to slots; all blocks of the one before must be freed.

        Raises:
            MemplanError: A planned block outlives its stretch: the next could overlap it.
        """
        if self._live:
            raise MemplanError(f"{self._live} planned blocks outlive their step")
        self._slots, self._next = slots, 0

    def allocate(self, nbytes: int, stream: int) -> Block | None:
        """Serve a request; None, with ``failure`` set, if the device is full."""
        slot = self._slots[self._next] if self._next < len(self._slots) else None
        self._next += 1
        if slot is None or nbytes > slot.size or not nbytes:
            block = self.online.allocate(nbytes, stream)
            self.failure = self.online.failure
            return block
        if not self._arena_taken and not self._take_arena(stream):
            return None
        block = Block(self._arena, ARENA_ADDRESS + slot.offset, -(-nbytes // MIN_BLOCK) * MIN_BLOCK)
        block.requested = nbytes
        self._planned_requested += nbytes
        self._planned_allocated += block.size
        self._live += 1
        return block

    def free(self, block: Block) -> None:
        """Take a live block back."""
        if block.pool is not self._arena:
            self.online.free(block)
            return
        self._planned_requested -= block.requested
        self._planned_allocated -= block.size
        self._live -= 1

    def largest_free(self) -> int:
        """Largest mapped free block beside the arena."""
        return self.online.largest_free()

    def fingerprint(self, live: Mapping[int, Block]) -> tuple[object, ...]:
        """What decides its future: the online allocator's state. Between steps no planned block is alive."""
        return self.online.fingerprint({name: block for name, block in live.items() if block.pool is not self._arena})

    def _take_arena(self, stream: int) -> bool:
        if self._limit is not None and self._arena_bytes + self.online.reserved > self._limit:
            size = Bytes(self._arena_bytes)
            held = Bytes(self.allocated), Bytes(self.reserved)
            self.failure = OutOfMemory(rounded=size, wanted=size, allocated=held[0], reserved=held[1], stream=stream)
            return False
        self._arena_taken = self._arena_bytes
        for observer in self.observers:
            observer.map(self._arena, ARENA_ADDRESS, self._arena_bytes)
        return True
