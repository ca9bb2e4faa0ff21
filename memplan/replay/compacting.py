"""Best fit in one growing arena, with compaction: live blocks are moved together when too much is free.

PyTorch cannot do this: tensors hold addresses, and kernels in flight use them. It is a bound, and a what-if: how little
memory would do if blocks could move, and how many bytes would have to be copied for it.

    before   ┌──────┬──────┬──────┬────┬──────┬───────┐     a request that fits no gap, while enough is free in all
             │ live │ free │ live │free│ live │ free  │
    after    ┌──────┬──────┬──────┬───────────────────┐     the second and third block were moved
             │ live │ live │ live │        free       │
             └──────┴──────┴──────┴───────────────────┘
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from memplan.replay.blocks import Block, Pool, chain_of
from memplan.replay.observer import Observer
from memplan.replay.policy import LARGE_SEGMENT, MIN_BLOCK, SMALL_SEGMENT, SMALL_SIZE
from memplan.replay.records import OutOfMemory
from memplan.units import Bytes

GROWTH: Final = SMALL_SEGMENT
"""Unit in which an arena grows: the smallest that CUDA maps."""
CANDIDATES: Final = 8
"""Gaps looked at for one that leaves no splinter, before the tightest is taken anyway."""
ARENA_STRIDE: Final = LARGE_SEGMENT << 26
"""Distance between the arenas of different streams: more than any device has."""


class _Arena:
    """One stream's memory: blocks in address order, free ones also by size."""

    def __init__(self, stream: int, origin: int) -> None:
        self.pool = Pool(stream, small=False, unit=GROWTH)
        self.origin = origin
        self.size = self.live_bytes = 0
        self.head: Block | None = None
        self.tail: Block | None = None

    @property
    def free_end(self) -> int:
        """Bytes of the free block at the end, which growth would extend."""
        return self.tail.size if self.tail is not None and self.tail.free else 0

    @property
    def scattered(self) -> int:
        """Bytes of all other free blocks, which only compaction brings together."""
        return self.size - self.live_bytes - self.free_end

    def take(self, size: int) -> Block | None:
        """A live block out of the gap that suits best; None if no gap is large enough."""
        index = self.pool.position(size)
        if index == len(self.pool.keys):
            return None
        block = next(filter(lambda gap: _leaves_no_splinter(gap, size), self._gaps(index)), self.pool.at(index))
        self.pool.remove(block)
        if block.size > size:
            rest = block.cut(size)
            self.tail = rest if self.tail is block else self.tail
            self.pool.insert(rest)
        self.live_bytes += size
        return block

    def give_back(self, block: Block) -> None:
        """Free a live block and merge it with free neighbours."""
        self.live_bytes -= block.size
        for left, right in ((block, block.next), (block.previous, block)):
            if left is None or right is None:
                continue
            other = right if left is block else left
            if other.free:
                self.pool.remove(other)
                left.absorb(right)
                self.tail = left if self.tail is right else self.tail
                block = left
        self.pool.insert(block)

    def grow(self, nbytes: int) -> None:
        """Append free memory."""
        if self.tail is not None and self.tail.free:
            self.pool.remove(self.tail)
            self.tail.size += nbytes
        else:
            self._append(Block(self.pool, self.origin + self.size, nbytes))
        self.size += nbytes
        if self.tail is not None:
            self.pool.insert(self.tail)

    def compact(self) -> int:
        """Move all live blocks together; bytes moved."""
        live = [block for block in chain_of(self.head) if not block.free] if self.head is not None else []
        self.pool.keys.clear()
        self.pool.blocks.clear()
        self.head = self.tail = None
        moved, address = 0, self.origin
        for block in live:
            moved += block.size if block.address != address else 0
            block.address = address
            self._append(block)
            address += block.size
        if self.size > self.live_bytes:
            self._append(Block(self.pool, address, self.size - self.live_bytes))
            self.pool.insert(self.tail)  # type: ignore[arg-type]  # the block of the line before
        return moved

    def _append(self, block: Block) -> None:
        block.previous, block.next = self.tail, None
        if self.tail is None:
            self.head = block
        else:
            self.tail.next = block
        self.tail = block

    def _gaps(self, index: int) -> "islice[Block]":
        return islice((self.pool.at(place) for place in range(index, len(self.pool.keys))), CANDIDATES)


def _leaves_no_splinter(gap: Block, size: int) -> bool:
    """Would the rest be nothing, or of use to requests of this kind?"""
    rest = gap.size - size
    return not rest or rest >= (SMALL_SIZE if size > SMALL_SIZE else MIN_BLOCK)


class CompactingAllocator:
    """One device's arenas, one per stream; the interface is ``memplan.replay.allocator.Allocator``'s.

    A request that fits no gap compacts an arena of which so large a share is free in gaps; a full device compacts
    whatever the share.
    """

    observers: Sequence[Observer] = ()
    """Told of what arenas grow by."""
    retries = 0

    def __init__(self, *, compact_at: float, limit_bytes: int | None = None) -> None:
        self.requested = 0
        """Bytes asked for and alive."""
        self.failure: OutOfMemory | None = None
        """Why the last ``allocate`` returned None."""
        self.moved_bytes = 0
        """Bytes of live blocks that were moved."""
        self.compactions = 0
        """Times that an arena was compacted."""
        self._compact_at = compact_at
        self._limit = limit_bytes
        self._arenas: dict[int, _Arena] = {}
        self.allocated = self.reserved = 0

    @property
    def segments(self) -> int:
        """Number of arenas."""
        return len(self._arenas)

    def allocate(self, nbytes: int, stream: int) -> Block | None:
        """Serve a request; None, with ``failure`` set, if the device is full. The block may move later."""
        arena = self._arenas.get(stream)
        if arena is None:
            arena = self._arenas[stream] = _Arena(stream, len(self._arenas) * ARENA_STRIDE)
        size = -(-nbytes // MIN_BLOCK) * MIN_BLOCK
        if not size:
            return Block(arena.pool, 0, 0)
        block = arena.take(size) or self._make_room(arena, size)
        if block is None:
            held = Bytes(self.allocated), Bytes(self.reserved)
            rounded = Bytes(size)
            self.failure = OutOfMemory(
                rounded=rounded, wanted=rounded, allocated=held[0], reserved=held[1], stream=stream
            )
            return None
        block.requested = nbytes
        self.requested += nbytes
        self.allocated += size
        return block

    def free(self, block: Block) -> None:
        """Take a live block back."""
        if not block.size:
            return
        self.requested -= block.requested
        self.allocated -= block.size
        block.requested = 0
        self._arenas[block.pool.stream].give_back(block)

    def largest_free(self) -> int:
        """Largest gap; compaction could make a larger one."""
        return max((arena.pool.at(-1).size for arena in self._arenas.values() if arena.pool.keys), default=0)

    def fingerprint(self, live: Mapping[int, Block]) -> tuple[object, ...]:
        """What decides its future: every arena's blocks, and which of them will be freed by name."""
        shape = tuple(
            (stream, tuple((block.size, block.free) for block in chain_of(arena.head)) if arena.head else ())
            for stream, arena in sorted(self._arenas.items())
        )
        return shape, tuple(sorted((name, block.address, block.size) for name, block in live.items()))

    def _make_room(self, arena: _Arena, size: int) -> Block | None:
        """Compact if that is worth it, then grow; where the device is full, compact in any case."""
        if arena.scattered and arena.scattered >= self._compact_at * arena.size:
            self._compact(arena)
        if not self._grow(arena, size) and arena.scattered:
            self._compact(arena)
            self._grow(arena, size)
        return arena.take(size)

    def _compact(self, arena: _Arena) -> None:
        self.moved_bytes += arena.compact()
        self.compactions += 1

    def _grow(self, arena: _Arena, size: int) -> bool:
        """Make the free end at least as large as a request; False if the device is full."""
        units = -(-(size - arena.free_end) // GROWTH)
        if units <= 0:
            return True
        if self._limit is not None and self.reserved + units * GROWTH > self._limit:
            return False
        for observer in self.observers:
            observer.map(arena.pool, arena.origin + arena.size, units * GROWTH)
        arena.grow(units * GROWTH)
        self.reserved += units * GROWTH
        return True
