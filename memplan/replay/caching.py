"""The native CUDA caching allocator, address by address.

What it models: rounding, pools by stream and size class, best fit, splitting and merging, segments, the retry chain
when the device is full, garbage collection, the options of ``AllocatorPolicy``, blocks that several streams use
(``memplan.replay.sharing``) and private pools (``memplan.replay.private_pools``). What it does not: time, threads,
callbacks that free memory on demand, and segments shared between processes. Rules after
``c10/cuda/CUDACachingAllocator.cpp`` (torch 2.13); names of its functions stand in brackets.

    segment   ┌────────────┬──────┬────────────────┬───────────┐
              │ allocated  │ free │   allocated    │   free    │   blocks tile it; free neighbours are merged
              └────────────┴──────┴────────────────┴───────────┘
                              ▲ a pool finds it by (size, address)

Among free blocks of one size the lowest address serves. torch 2.13 takes the oldest segment first, which is the same
where segments lie one behind the other, as here by default.
"""

from collections.abc import Callable, Iterable

from memplan.errors import MemplanError
from memplan.replay.blocks import FIRST_ADDRESS, Block, Pool
from memplan.replay.policy import MIN_BLOCK, SMALL_SIZE, AllocatorPolicy
from memplan.replay.records import DEFAULT_POOL, OutOfMemory, Request
from memplan.replay.release import oldest, oversize
from memplan.replay.segments import Segments
from memplan.units import Bytes

_EVERY_SIZE = 1 << 62
"""Stands for ``max_split_size`` None (``std::numeric_limits<size_t>::max()`` there)."""


def bump_addresses(start: int = FIRST_ADDRESS) -> Callable[[int], int]:
    """Place segments one behind the other. Real drivers mostly go down: requested and reserved bytes stay the same.

    Of free blocks of one size the lowest address serves, so peaks of allocated bytes may move: not in 18 real
    snapshots, by at most 0.13 % in workloads on an H100 whose streams are predicted event by event (2026-11-23).
    """
    end = start

    def place(nbytes: int) -> int:
        nonlocal end
        end += nbytes
        return end - nbytes

    return place


class CachingAllocator(Segments):
    """One device's allocator with fixed segments (``expandable_segments:False``).

    Args:
        policy: Its options.
        limit_bytes: Memory that the device can give it in all; None for no limit.
        device_bytes: Total memory of the device, which ``per_process_memory_fraction`` is a share of; ``limit_bytes``
            where not given.
        place: Chooses the address of a new segment of so many bytes; by default one behind the other.
    """

    def __init__(
        self,
        policy: AllocatorPolicy,
        *,
        limit_bytes: int | None = None,
        device_bytes: int | None = None,
        place: Callable[[int], int] | None = None,
    ) -> None:
        super().__init__(policy, limit_bytes=limit_bytes, device_bytes=device_bytes, place=place or bump_addresses())
        self.retries = 0
        """Times that everything cached was released to satisfy one request (``num_alloc_retries``)."""
        self.failure: OutOfMemory | None = None
        """Why the last ``allocate`` returned None."""
        self._max_split = _EVERY_SIZE if policy.max_split_size is None else policy.max_split_size
        self._sizes: dict[int, int] = {}
        self._shared_uses = self._shared.uses
        self._unsettled = False

    def allocate(self, nbytes: int, stream: int) -> Block | None:
        """Serve a request (``malloc``) on a CUDA stream; 0 bytes give a block outside all segments.

        None where the device is full; ``failure`` then says why.
        """
        size = self._sizes.get(nbytes)
        if size is None:
            size = self._sizes[nbytes] = self._policy.round_size(nbytes) if nbytes else 0
        small = size <= SMALL_SIZE
        pool = self._pools.get((stream, small)) or self._new_pool(stream, small)
        if not size:
            return Block(pool, 0, 0)
        if self._unsettled:
            self._settle(stream)
        block = self._find(pool, size) or self._obtain(pool, size)
        if block is None:
            return None
        if block.size - size >= self._least_rest(pool, size):
            pool.insert(block.cut(size))
        block.requested = nbytes
        self.requested += nbytes
        self.allocated += block.size
        return block

    def free(self, block: Block) -> None:
        """Take a live block back (``free``); one that other streams use waits for them."""
        if not block.size:
            return
        self.allocated -= block.size
        if self._shared_uses and block in self._shared_uses:
            self.pending += block.size
            self._shared.hold(block, capturing=self._private.capturing)
            self._unsettled = True
            return
        self.requested -= block.requested
        self._reclaim(block)

    def perform(self, request: Request, block: Block | None) -> None:
        """Do everything that is neither an allocation nor a free: ``Request`` says what each action means.

        Raises:
            MemplanError: A pool is begun, ended or released out of turn.
        """
        match request.action:
            case "record_stream" if block is not None and block.size:
                self._shared.record(block, request.stream, capturing=self._private.capturing)
            case "synchronize":
                self._shared.synchronize(request.stream)
            case "pool_begin":
                self._private.begin(request.key)
            case "pool_end":
                self._private.end(request.key)
            case "pool_release":
                self._private.release(request.key)
            case "empty_cache":
                self.empty_cache(request.key)
            case _:
                pass
        self._pools = self._private.current()
        self._unsettled = not self._shared.quiet

    def empty_cache(self, owner: int = DEFAULT_POOL) -> None:
        """Give cached memory back to the device (``release_cached_blocks``).

        A private pool is left alone while it has users. The default one stands for all of them; while a private pool is
        open it is left alone.
        """
        if owner == DEFAULT_POOL and not self._private.capturing:
            self._take_back(self._shared.wait())
            self._flush(self._private.default.values())
        for released in self._private.released(owner):
            if owner != DEFAULT_POOL:
                self._check_not_capturing()
                self._take_back(self._shared.wait(owner))
            self._flush(self._private.of(released).values())
            self._private.forget(released, self._heads.values())
        self._unsettled = not self._shared.quiet

    def _settle(self, stream: int) -> None:
        """What precedes a search where streams share blocks; a capture cannot ask events (``process_events``)."""
        self._shared.work_on(stream)
        if not self._private.capturing:
            self._take_back(self._shared.completed())
        self._unsettled = not self._shared.quiet

    def _take_back(self, blocks: Iterable[Block]) -> None:
        """Blocks that no longer wait are free."""
        for block in blocks:
            self.pending -= block.size
            self.requested -= block.requested
            self._reclaim(block)

    def _find(self, pool: Pool, size: int) -> Block | None:
        """Best fit among free blocks (``get_free_block``)."""
        self._searches += pool.ages
        index = pool.position(size)
        if index == len(pool.keys) or not self._suits(pool.at(index), size):
            return None
        block = pool.blocks.pop(pool.keys.pop(index))
        block.free = False
        return block

    def _suits(self, block: Block, size: int) -> bool:
        """Oversize blocks serve oversize requests only, and those only nearly of their size."""
        if size < self._max_split:
            return block.size < self._max_split
        return block.size < size + self._policy.max_non_split_rounding

    def _least_rest(self, pool: Pool, size: int) -> int:
        """Smallest rest that is split off (``should_split``)."""
        if pool.small:
            return MIN_BLOCK
        return SMALL_SIZE + 1 if size < self._max_split else _EVERY_SIZE

    def _obtain(self, pool: Pool, size: int) -> Block | None:
        """Ask the device, releasing more and more of what is cached. As in PyTorch, the pool is not searched again."""
        if self._collects:
            self._collect_garbage()
        block = self._ask_device(pool, size)
        if block is None and not self._budget.rejects(self.reserved + self._policy.segment_size(size)):
            if self._release_oversize(pool, size):
                block = self._ask_device(pool, size)
            # A capture must not wait for streams.
            if block is None and not self._private.capturing:
                self.empty_cache()
                # Counted before the device is asked, whether or not it helps.
                self.retries += 1
                block = self._ask_device(pool, size)
        if block is None:
            self.failure = OutOfMemory(
                rounded=Bytes(size),
                wanted=Bytes(self._policy.segment_size(size)),
                allocated=Bytes(self.allocated),
                reserved=Bytes(self.reserved),
                stream=pool.stream,
            )
        return block

    def _release_oversize(self, pool: Pool, size: int) -> bool:
        """Release just enough oversize blocks of the stream (``release_available_cached_blocks``)."""
        if self._policy.max_split_size is None:
            return False
        wanted = max(size, self._max_split)
        chosen = oversize(pool, wanted, self._max_split)
        for block in chosen:
            self._release(block)
        return sum(block.size for block in chosen) >= wanted

    def _collect_garbage(self) -> None:
        """Release old whole segments, above the threshold."""
        target = self.reserved - int(self._policy.garbage_collection_threshold * (self._budget.allowed or 0))
        if target <= 0:
            return
        pools = [pool for pool in self._private.default.values() if pool.ages]
        ages = {b: self._age(b) for pool in pools for b in pool.blocks.values() if not b.is_split}
        for block in oldest(ages, target):
            self._release(block)

    def _check_not_capturing(self) -> None:
        if self._private.capturing:
            raise MemplanError("a private pool cannot be emptied while one is open: that would wait for streams")
