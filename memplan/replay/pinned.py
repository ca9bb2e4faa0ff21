"""Page-locked host memory as PyTorch caches it: blocks by powers of two, never split and never merged.

    1.1 GiB ──► 2 GiB block ──► freed: last in, first out among blocks of (1 GiB, 2 GiB]

Rules after ``ATen/core/CachingHostAllocator.h`` and ``ATen/cuda/CachingHostAllocator.cpp`` (torch 2.13); when a freed
block comes back is told in ``memplan.replay.sharing``. Not modelled: captures, whose pinned blocks never come back once
a stream has used them, and background threads, which change the moment alone. Where the options leave blocks of several
sizes in one list, the youngest that is large enough serves; torch 2.13.0 takes the youngest unseen.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from memplan.replay.blocks import Block, Pool
from memplan.replay.observer import Observer
from memplan.replay.policy import PinnedPolicy
from memplan.replay.records import ALL_STREAMS, OutOfMemory, Request
from memplan.replay.sharing import SharedBlocks
from memplan.units import Bytes

RESERVE_ALIGNMENT: Final = 4096
"""Blocks begin on it inside the reserve segment (``PinnedReserveSegment::allocate``)."""


class PinnedAllocator:
    """The host's allocator for pinned memory; the interface is ``memplan.replay.allocator.StreamAllocator``."""

    observers: Sequence[Observer] = ()
    """Told of nothing here: what is pinned is no device's."""

    def __init__(self, policy: PinnedPolicy, *, limit_bytes: int | None = None) -> None:
        self.requested = 0
        """Bytes asked for, of live and pending blocks."""
        self.allocated = 0
        """Bytes in live blocks."""
        self.pending = 0
        """Bytes in freed blocks that a stream may still read."""
        self.reserved = 0
        """Bytes pinned."""
        self.segments = 0
        """Stretches pinned, one for each block outside the reserve segment."""
        self.retries = 0
        """Always 0: nothing is released to serve a request."""
        self.failure: OutOfMemory | None = None
        """Why the last ``allocate`` returned None."""
        self._policy = policy
        self._limit = limit_bytes
        # No block has a stream of its own here, and its address only says when it was made.
        self._pool = Pool(ALL_STREAMS, small=False)
        self._free: defaultdict[int, list[Block]] = defaultdict(list)
        self._shared = SharedBlocks(one_queue=True)
        self._reserve_left: int | None = None
        self._inside: set[Block] = set()
        self._born = 0

    def allocate(self, nbytes: int, stream: int) -> Block | None:
        """Serve a request (``allocate``); the stream plays no part, and 0 bytes give a block without memory.

        None where the host cannot pin so much; ``failure`` then says why.
        """
        if not nbytes:
            return Block(self._pool, 0, 0)
        for waited in self._shared.completed():
            self.pending -= waited.size
            self._reclaim(waited)
        size = self._policy.round_size(nbytes)
        block = self._take(size) or self._pin(size, stream)
        if block is not None:
            block.requested = nbytes
            self.requested += nbytes
            self.allocated += block.size
        return block

    def free(self, block: Block) -> None:
        """Take a live block back (``free``); one that a stream reads waits for it."""
        if not block.size:
            return
        self.allocated -= block.size
        if block in self._shared.uses:
            self.pending += block.size
            self._shared.hold(block, capturing=False)
        else:
            self._reclaim(block)

    def perform(self, request: Request, block: Block | None) -> None:
        """``record_stream``, ``synchronize`` and ``empty_cache``; pools mean nothing here."""
        match request.action:
            case "record_stream" if block is not None and block.size:
                self._shared.record(block, request.stream, capturing=False)
            case "synchronize":
                self._shared.synchronize(request.stream)
            case "empty_cache":
                self.empty_cache()
            case _:
                pass

    def empty_cache(self) -> None:
        """Unpin all free blocks, but those of the reserve segment; no stream is waited for (``empty_cache``)."""
        for waited in self._shared.completed():
            self.pending -= waited.size
            self._reclaim(waited)
        for blocks in self._free.values():
            for block in blocks:
                self._unpin(block)
        self._free.clear()

    def fingerprint(self, live: Mapping[int, Block]) -> tuple[object, ...]:
        """What decides its future, with the live blocks that will be freed by name."""
        known = {*live.values(), *self._shared.uses, *self._shared.waiting}
        ranks = {block: (block.size, rank) for rank, block in enumerate(sorted(known, key=lambda block: block.address))}
        free = tuple((key, tuple(self._kind(block) for block in blocks)) for key, blocks in sorted(self._free.items()))
        names = tuple(sorted((name, ranks[block], self._kind(block)) for name, block in live.items()))
        return free, names, self._shared.fingerprint(ranks), self.requested, self.reserved, self._reserve_left

    def _kind(self, block: Block) -> tuple[int, bool]:
        return block.size, block in self._inside

    def _take(self, size: int) -> Block | None:
        """Youngest free block of the list that is large enough (``get_free_block``)."""
        blocks = self._free[_index(size)]
        for position in reversed(range(len(blocks))):
            if blocks[position].size >= size:
                return blocks.pop(position)
        return None

    def _pin(self, size: int, stream: int) -> Block | None:
        """Pin more memory, from the reserve segment as long as it lasts (``allocate_host_memory``)."""
        if self._reserve_left is None and not self._open_reserve():
            self._fail(size, self._policy.reserve_segment_size, stream)
            return None
        inside = self._take_reserve(size)
        if not inside and not self._pins(size):
            self._fail(size, size, stream)
            return None
        self._born += 1
        block = Block(self._pool, self._born, size)
        if inside:
            self._inside.add(block)
        return block

    def _open_reserve(self) -> bool:
        """Pin the reserve segment whole, when memory is first needed."""
        size = self._policy.reserve_segment_size
        if size and not self._pins(size):
            return False
        self._reserve_left = size
        return True

    def _take_reserve(self, size: int) -> bool:
        taken = -(-size // RESERVE_ALIGNMENT) * RESERVE_ALIGNMENT
        if self._reserve_left is None or taken > self._reserve_left:
            return False
        self._reserve_left -= taken
        return True

    def _pins(self, size: int) -> bool:
        """Pin a stretch, if the host can."""
        if self._limit is not None and self.reserved + size > self._limit:
            return False
        self.reserved += size
        self.segments += 1
        return True

    def _fail(self, rounded: int, wanted: int, stream: int) -> None:
        self.failure = OutOfMemory(
            rounded=Bytes(rounded),
            wanted=Bytes(wanted),
            allocated=Bytes(self.allocated),
            reserved=Bytes(self.reserved),
            stream=stream,
        )

    def _reclaim(self, block: Block) -> None:
        """Keep a free block, or unpin it where it is too large to keep (``maybe_cache_block``)."""
        self.requested -= block.requested
        block.requested = 0
        largest = self._policy.max_cached_size
        if largest is not None and block.size > largest:
            self._unpin(block)
        else:
            self._free[_index(block.size)].append(block)

    def _unpin(self, block: Block) -> None:
        """Give a block's memory back; what the reserve segment gave is lost (``free_block``)."""
        if block in self._inside:
            self._inside.remove(block)
            return
        self.reserved -= block.size
        self.segments -= 1


def _index(size: int) -> int:
    """The list that a block of this size is kept in: log2, rounded up (``size_index``)."""
    return (size - 1).bit_length()
