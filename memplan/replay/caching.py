"""The native CUDA caching allocator, address by address.

What it models: rounding, pools by stream and size class, best fit, splitting and merging, segments, the retry chain
when the device is full, garbage collection and the options of ``AllocatorPolicy``. What it does not: ``record_stream``,
graph pools and user pools. Rules after ``c10/cuda/CUDACachingAllocator.cpp`` (torch 2.13); names of its functions stand
in brackets.

    segment   ┌────────────┬──────┬────────────────┬───────────┐
              │ allocated  │ free │   allocated    │   free    │   blocks tile it; free neighbours are merged
              └────────────┴──────┴────────────────┴───────────┘
                              ▲ a pool finds it by (size, address)
"""

from collections.abc import Callable, Iterator, Mapping

from memplan.replay.blocks import Block, Pool
from memplan.replay.policy import MIN_BLOCK, SMALL_SIZE, AllocatorPolicy
from memplan.replay.records import BlockLayout, MemoryLayout, OutOfMemory, SegmentLayout
from memplan.units import Bytes

_EVERY_SIZE = 1 << 62
"""Stands for ``max_split_size`` None (``std::numeric_limits<size_t>::max()`` there)."""


def bump_addresses(start: int = 0) -> Callable[[int], int]:
    """Place segments one behind the other. Real drivers differ, which changes no peak (18 of 18 real traces)."""
    end = start

    def place(nbytes: int) -> int:
        nonlocal end
        end += nbytes
        return end - nbytes

    return place


class CachingAllocator:
    """One device's allocator with fixed segments (``expandable_segments:False``).

    Args:
        policy: Its options.
        limit_bytes: Memory that the device can give it in all; None for no limit.
        device_bytes: Total memory of the device, which ``per_process_memory_fraction`` is a share of; ``limit_bytes``
            where not given.
        place: Chooses the address of a new segment of so many bytes; by default one behind the other from 0.
    """

    def __init__(
        self,
        policy: AllocatorPolicy,
        *,
        limit_bytes: int | None = None,
        device_bytes: int | None = None,
        place: Callable[[int], int] | None = None,
    ) -> None:
        self.requested = 0
        """Bytes asked for and alive."""
        self.allocated = 0
        """Bytes in live blocks."""
        self.reserved = 0
        """Bytes in segments."""
        self.retries = 0
        """Times that everything cached was released to satisfy one request (``num_alloc_retries``)."""
        self.failure: OutOfMemory | None = None
        """Why the last ``allocate`` returned None."""
        self._policy = policy
        self._limit = limit_bytes
        self._device_bytes = limit_bytes if device_bytes is None else device_bytes
        self._allowed = self._allowance()
        self._collects = self._allowed is not None and policy.garbage_collection_threshold > 0
        self._max_split = _EVERY_SIZE if policy.max_split_size is None else policy.max_split_size
        self._place = place or bump_addresses()
        self._sizes: dict[int, int] = {}
        self._pools: dict[tuple[int, bool], Pool] = {}
        self._heads: dict[int, Block] = {}
        self._searches = 0

    def allocate(self, nbytes: int, stream: int) -> Block | None:
        """Serve a request (``malloc``).

        Args:
            nbytes: Bytes asked for; 0 gives a block outside all segments.
            stream: CUDA stream.

        Returns:
            A live block, or None if the device is full; ``failure`` then says why.
        """
        size = self._sizes.get(nbytes)
        if size is None:
            size = self._sizes[nbytes] = self._policy.round_size(nbytes) if nbytes else 0
        small = size <= SMALL_SIZE
        pool = self._pools.get((stream, small)) or self._pools.setdefault((stream, small), Pool(stream, small))
        if not size:
            return Block(pool, 0, 0)
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
        """Take a live block back and merge it with free neighbours (``free``, ``free_block``)."""
        if not block.size:
            return
        self.requested -= block.requested
        self.allocated -= block.size
        block.requested = 0
        pool = block.pool
        following, previous = block.next, block.previous
        if following is not None and following.free:
            pool.remove(following)
            block.absorb(following)
        if previous is not None and previous.free:
            pool.remove(previous)
            previous.absorb(block)
            block = previous
        block.since = self._searches
        pool.insert(block)

    def empty_cache(self) -> None:
        """Give segments without a live block back to the device (``release_cached_blocks``)."""
        for pool in self._pools.values():
            for block in list(pool.blocks.values()):
                if not block.is_split:
                    self._release(block)

    def adopt(self, segment: SegmentLayout) -> tuple[Block, ...]:
        """Add a segment as it stands, as if earlier requests had left it.

        Returns:
            Its blocks in address order.
        """
        pool = self._pools.setdefault((segment.stream, segment.small), Pool(segment.stream, segment.small))
        block = self._heads[segment.address] = Block(pool, segment.address, segment.size)
        self.reserved += segment.size
        for part in segment.blocks[:-1]:
            block = block.cut(part.size)
        chain = tuple(chain_of(self._heads[segment.address]))
        for block, part in zip(chain, segment.blocks, strict=True):
            if part.state == "free":
                pool.insert(block)
            else:
                block.requested = part.requested
                self.requested += part.requested
                self.allocated += part.size
        return chain

    def release_segment(self, address: int, nbytes: int) -> bool:
        """Give one segment back; False unless it is there, of that size and without a live block."""
        block = self._heads.get(address)
        if block is None or block.is_split or not block.free or block.size != nbytes:
            return False
        self._release(block)
        return True

    @property
    def segments(self) -> int:
        """Number of segments."""
        return len(self._heads)

    def layout(self) -> MemoryLayout:
        """Everything it holds, in address order, for validators and reports."""
        return MemoryLayout(
            segments=tuple(_describe(list(chain)) for head in self._ordered_heads() for chain in _mapped_runs(head)),
            requested=Bytes(self.requested),
            allocated=Bytes(self.allocated),
            reserved=Bytes(self.reserved),
        )

    def fingerprint(self, live: Mapping[int, Block]) -> tuple[object, ...]:
        """What decides its future, equal for states that differ in nothing but segment addresses.

        Args:
            live: Live blocks that will be freed, by name. Other live blocks count as taken for ever.
        """
        where: dict[Block, tuple[int, int]] = {}
        shape: list[tuple[object, ...]] = []
        for rank, head in enumerate(self._ordered_heads()):
            row: list[object] = [head.pool.stream, head.pool.small]
            for block in chain_of(head):
                where[block] = (rank, block.address - head.address)
                age = self._searches - block.since if block.free and self._collects else 0
                row.append((block.size, block.free, block.mapped, age))
            shape.append(tuple(row))
        return tuple(shape), tuple(sorted((name, where.get(block)) for name, block in live.items() if block.size))

    def _ordered_heads(self) -> list[Block]:
        return [self._heads[address] for address in sorted(self._heads)]

    def _allowance(self) -> int | None:
        """Bytes that ``per_process_memory_fraction`` allows (``setMemoryFraction``)."""
        fraction = self._policy.per_process_memory_fraction
        return int(fraction * self._device_bytes) if fraction < 1 and self._device_bytes is not None else None

    def _find(self, pool: Pool, size: int) -> Block | None:
        """Best fit among free blocks (``get_free_block``)."""
        self._searches += not pool.small
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
        if block is None and not self._rejects(size):
            if self._release_oversize(pool, size):
                block = self._ask_device(pool, size)
            if block is None:
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

    def _within_allowance(self, size: int) -> bool:
        return self._allowed is None or self.reserved + self._policy.segment_size(size) <= self._allowed

    def _rejects(self, size: int) -> bool:
        """Does ``throw_on_cudamalloc_oom`` end the request at once?"""
        policy = self._policy
        if not policy.throw_on_cudamalloc_oom or self._device_bytes is None or not self._within_allowance(size):
            return False
        share = int(policy.per_process_memory_fraction * self._device_bytes)
        return self.reserved + policy.segment_size(size) > share

    def _ask_device(self, pool: Pool, size: int) -> Block | None:
        """A new segment (``alloc_block``)."""
        nbytes = self._policy.segment_size(size)
        if not self._within_allowance(size) or (self._limit is not None and self.reserved + nbytes > self._limit):
            return None
        self.reserved += nbytes
        address = self._place(nbytes)
        block = self._heads[address] = Block(pool, address, nbytes)
        return block

    def _release(self, block: Block) -> None:
        """Give a free block that is a whole segment back (``release_block``)."""
        block.pool.remove(block)
        del self._heads[block.address]
        self.reserved -= block.size

    def _release_oversize(self, pool: Pool, size: int) -> bool:
        """Release just enough oversize blocks of the stream (``release_available_cached_blocks``)."""
        if self._policy.max_split_size is None:
            return False
        wanted = max(size, self._max_split)
        index = pool.position(wanted)
        if index < len(pool.keys):
            self._release(pool.at(index))
            return True
        released = 0
        while released < wanted and pool.keys and pool.at(-1).size >= self._max_split:
            released += pool.at(-1).size
            self._release(pool.at(-1))
        return released >= wanted

    def _collect_garbage(self) -> None:
        """Release old whole segments of the large pools (``garbage_collect_cached_blocks``)."""
        threshold = int(self._policy.garbage_collection_threshold * (self._allowed or 0))
        target = self.reserved - threshold
        whole = [b for pool in self._pools.values() if not pool.small for b in pool.blocks.values() if not b.is_split]
        while target > 0 and whole:
            # Everything of at least average age goes, even beyond the target: this should not run often.
            average = sum(self._searches - block.since for block in whole) / len(whole)
            for block in [block for block in whole if self._searches - block.since >= average]:
                target -= block.size
                whole.remove(block)
                self._release(block)


def chain_of(first: Block) -> Iterator[Block]:
    """A block and all that follow it in its segment."""
    block: Block | None = first
    while block is not None:
        yield block
        block = block.next


def _mapped_runs(head: Block) -> Iterator[list[Block]]:
    """Contiguous backed stretches of a segment; a fixed segment is one."""
    run: list[Block] = []
    for block in chain_of(head):
        if block.mapped:
            run.append(block)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _describe(run: list[Block]) -> SegmentLayout:
    first = run[0]
    return SegmentLayout(
        address=first.address,
        size=Bytes(sum(block.size for block in run)),
        stream=first.pool.stream,
        small=first.pool.small,
        blocks=tuple(
            BlockLayout(
                address=block.address,
                size=Bytes(block.size),
                requested=Bytes(block.requested),
                state="free" if block.free else "allocated",
            )
            for block in run
        ),
    )
