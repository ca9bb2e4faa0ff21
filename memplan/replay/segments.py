"""What the CUDA caching allocator holds: segments, their blocks, the pools of free ones, and the totals.

Which block serves a request, and when something is released, is decided in ``memplan.replay.caching``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from memplan.replay.blocks import Block, Pool, chain_of
from memplan.replay.budget import Budget
from memplan.replay.layout import describe, shape
from memplan.replay.observer import Observer
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.private_pools import PrivatePools
from memplan.replay.records import MemoryLayout, SegmentLayout
from memplan.replay.sharing import SharedBlocks
from memplan.units import Bytes


class Segments:
    """One device's segments.

    ``place`` chooses the address of a new segment of so many bytes. Limits as of ``make_allocator``.
    """

    observers: Sequence[Observer] = ()
    """Told of what is taken from the device and given back."""
    moved_bytes = 0
    """Always 0: PyTorch moves no live block."""

    def __init__(
        self,
        policy: AllocatorPolicy,
        *,
        limit_bytes: int | None,
        device_bytes: int | None,
        place: Callable[[int], int],
    ) -> None:
        self.requested = 0
        """Bytes asked for, of live and pending blocks."""
        self.allocated = 0
        """Bytes in live blocks."""
        self.pending = 0
        """Bytes in freed blocks that wait for another stream."""
        self.reserved = 0
        """Bytes in segments."""
        self._policy = policy
        self._budget = Budget(policy, limit_bytes=limit_bytes, device_bytes=device_bytes)
        self._collects = self._budget.allowed is not None and policy.garbage_collection_threshold > 0
        self._place = place
        self._heads: dict[int, Block] = {}
        self._searches = 0
        self._private = PrivatePools()
        self._pools = self._private.default
        self._shared = SharedBlocks()

    def adopt(self, segment: SegmentLayout) -> tuple[Block, ...]:
        """Add a segment as it stands, as if earlier requests had left it.

        What a pending block waits for is not known: only a flush brings it back.

        Its blocks come in address order.
        """
        pools, key = self._private.of(segment.pool), (segment.stream, segment.small)
        pool = pools.setdefault(key, Pool(*key, segment.pool, self._unit(segment.small)))
        pool.least_segment = min(pool.least_segment, segment.size)
        block = self._heads[segment.address] = Block(pool, segment.address, segment.size)
        self.reserved += segment.size
        for part in segment.blocks[:-1]:
            block = block.cut(part.size)
        chain = tuple(chain_of(self._heads[segment.address]))
        for block, part in zip(chain, segment.blocks, strict=True):
            if part.state == "free":
                pool.insert(block)
                continue
            block.requested = part.requested
            self.requested += part.requested
            if part.state == "allocated":
                self.allocated += part.size
            else:
                self.pending += part.size
                self._shared.hold_unknown(block)
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

    def largest_free(self) -> int:
        """Largest block that a request can have without the device's help."""
        return max((pool.at(-1).size for pool in self._private.all() if pool.keys), default=0)

    def layout(self) -> MemoryLayout:
        """Everything it holds, in address order, for validators and reports."""
        return MemoryLayout(
            segments=tuple(describe(self._ordered_heads(), self._shared.waiting)),
            requested=Bytes(self.requested),
            allocated=Bytes(self.allocated + self.pending),
            reserved=Bytes(self.reserved),
        )

    def fingerprint(self, live: Mapping[int, Block]) -> tuple[object, ...]:
        """What decides its future, equal for states that differ in nothing but segment addresses.

        ``live`` are blocks that will be freed, by name; other live ones count as taken for ever.
        """
        rows, where = shape(self._ordered_heads(), self._age)
        names = tuple(sorted((name, where.get(block)) for name, block in live.items() if block.size))
        return rows, names, self._shared.fingerprint(where), self._private.fingerprint()

    def _age(self, block: Block) -> int:
        """Searches since a whole segment became free, where garbage collection asks."""
        return self._searches - block.since if self._collects and block.pool.ages and not block.is_split else 0

    def _ordered_heads(self) -> list[Block]:
        return [self._heads[address] for address in sorted(self._heads)]

    def _new_pool(self, stream: int, small: bool) -> Pool:
        pool = self._pools[stream, small] = Pool(stream, small, self._private.owner, self._unit(small))
        return pool

    def _unit(self, small: bool) -> int:  # noqa: ARG002 - says which, for expandable segments
        """Bytes that are mapped at once; 0 for whole segments."""
        return 0

    def _reclaim(self, block: Block) -> None:
        """Make a block free, merged with free neighbours (``free_block``)."""
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

    def _ask_device(self, pool: Pool, size: int) -> Block | None:
        """A new segment (``alloc_block``)."""
        nbytes = self._policy.segment_size(size)
        wanted = self.reserved + nbytes
        if not (self._budget.allows(wanted) and self._budget.gives(wanted)):
            return None
        self.reserved = wanted
        pool.least_segment = min(pool.least_segment, nbytes)
        address = self._place(nbytes)
        block = self._heads[address] = Block(pool, address, nbytes)
        for observer in self.observers:
            observer.map(pool, address, nbytes)
        return block

    def _flush(self, pools: Iterable[Pool]) -> None:
        """Give segments without a live block back (``release_blocks``)."""
        for pool in pools:
            for block in pool.at_least(pool.least_segment):
                if not block.is_split:
                    self._release(block)

    def _release(self, block: Block) -> None:
        """Give a free block that is a whole segment back (``release_block``)."""
        block.pool.remove(block)
        del self._heads[block.address]
        self.reserved -= block.size
        for observer in self.observers:
            observer.unmap(block.pool, block.address, block.size)
