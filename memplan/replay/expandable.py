"""The caching allocator with ``expandable_segments:True``: one growing segment for each stream and size class.

    address space   ┌───────────┬──────┬──────────┬───────────────────────────────────┐
                    │ allocated │ free │ allocated│            unmapped               │
                    └───────────┴──────┴──────────┴───────────────────────────────────┘
                    ◄──── mapped in units of 2 MiB (small) or 20 MiB (large) ──►◄─────►

Only mapped bytes are reserved. Rules after ``c10/cuda/CUDACachingAllocator.cpp`` (torch 2.13).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

from memplan.replay.blocks import Block, Pool, chain_of
from memplan.replay.caching import CachingAllocator
from memplan.replay.policy import MIN_BLOCK, AllocatorPolicy


class ExpandableAllocator(CachingAllocator):
    """One device's allocator with expandable segments; arguments and interface are ``CachingAllocator``'s."""

    def __init__(
        self,
        policy: AllocatorPolicy,
        *,
        limit_bytes: int | None = None,
        device_bytes: int | None = None,
        place: Callable[[int], int] | None = None,
    ) -> None:
        super().__init__(policy, limit_bytes=limit_bytes, device_bytes=device_bytes, place=place)
        # Few at any time: the end of each segment, and what was given back in between.
        self._unmapped: defaultdict[Pool, set[Block]] = defaultdict(set)

    @property
    def segments(self) -> int:
        """Number of segments with something mapped."""
        return sum(any(block.mapped for block in chain_of(head)) for head in self._heads.values())

    def _flush(self, pools: Iterable[Pool]) -> None:
        """Unmap every unit that lies wholly in a free block; drop segments with nothing mapped (``release_blocks``)."""
        for pool in pools:
            # A unit lies in no smaller block, and smaller ones are nearly all of a fragmented pool.
            for block in pool.at_least(pool.unit):
                left = self._unmap(block)
                if not left.mapped and not left.is_split:
                    del self._heads[left.address]
                    self._unmapped[pool].remove(left)

    def _find(self, pool: Pool, size: int) -> Block | None:
        """Best fit, where the block before unmapped space counts with that space (``get_free_block``)."""
        self._searches += pool.ages
        index, last = pool.position(size), len(pool.keys) - 1
        if index > last:
            return None
        while index < last and _reach(pool.at(index + 1)) < _reach(pool.at(index)):
            index += 1
        block = pool.at(index)
        if not self._suits(block, size):
            return None
        pool.remove(block)
        return block

    def _least_rest(self, pool: Pool, size: int) -> int:  # noqa: ARG002 - every rest is split off here
        return MIN_BLOCK

    def _ask_device(self, pool: Pool, size: int) -> Block | None:
        """Map more of a segment (``try_allocate_expandable_block``). What a failure has mapped stays, free."""
        if not self._budget.allows(self.reserved + self._policy.segment_size(size)):
            return None
        block = self._room(pool, size) or self._new_space(pool)
        while not block.mapped or block.size < size:
            target = block if not block.mapped else block.next
            if target is None:
                return None
            grown = self._map(target, min(target.size, size - (block.size if block.mapped else 0)))
            if grown is None:
                return None
            block = grown
        pool.remove(block)
        return block

    def _room(self, pool: Pool, size: int) -> Block | None:
        """Lowest unmapped space that is large enough with the free blocks around it (``find_expandable_block``)."""
        for block in sorted(self._unmapped[pool], key=lambda block: block.address):
            before = block.previous
            start = before if before is not None and before.free else block
            if _free_stretch(start, size) >= size:
                return start
        return None

    def _new_space(self, pool: Pool) -> Block:
        nbytes = self._policy.address_space(pool.small, self._budget.device_bytes)
        address = self._place(nbytes)
        block = self._heads[address] = Block(pool, address, nbytes)
        block.mapped = False
        self._unmapped[pool].add(block)
        return block

    def _unit(self, small: bool) -> int:
        return self._policy.unit(small)

    def _map(self, block: Block, size: int) -> Block | None:
        """Ask the device for the first ``size`` bytes, in whole units (``map_block``)."""
        pool = block.pool
        nbytes = -(-size // pool.unit) * pool.unit
        if not self._budget.gives(self.reserved + nbytes):
            return None
        for observer in self.observers:
            observer.map(pool, block.address, nbytes)
        return self._back(block, nbytes)

    def _back(self, block: Block, nbytes: int) -> Block:
        """Back the first bytes of an unmapped block, and merge them with free neighbours."""
        unmapped = self._unmapped[block.pool]
        unmapped.remove(block)
        if nbytes < block.size:
            unmapped.add(block.cut(nbytes))
        block.mapped = True
        self.reserved += nbytes
        return self._offer(block)

    def _offer(self, block: Block) -> Block:
        """Put a mapped block into its pool, merged with free neighbours."""
        following, previous = block.next, block.previous
        if following is not None and following.free:
            block.pool.remove(following)
            block.absorb(following)
        if previous is not None and previous.free:
            block.pool.remove(previous)
            previous.absorb(block)
            block = previous
        block.pool.insert(block)
        return block

    def _unmap(self, block: Block) -> Block:
        """Return the whole units inside a free block to the device; its ends stay mapped (``unmap_block``).

        A block in which no unit lies wholly is returned as it was.
        """
        pool, unit = block.pool, block.pool.unit
        start = self._origin(block)
        begin = start + -(-(block.address - start) // unit) * unit
        end = start + (block.address + block.size - start) // unit * unit
        if begin >= end:
            return block
        pool.remove(block)
        if begin > block.address:
            middle = block.cut(begin - block.address)
            pool.insert(block)
            block = middle
        if end < block.address + block.size:
            pool.insert(block.cut(end - begin))
        block.mapped = False
        self.reserved -= end - begin
        for observer in self.observers:
            observer.unmap(pool, begin, end - begin)
        following, previous = block.next, block.previous
        if following is not None and not following.mapped:
            self._unmapped[pool].remove(following)
            block.absorb(following)
        if previous is not None and not previous.mapped:
            previous.absorb(block)
            return previous
        self._unmapped[pool].add(block)
        return block

    def _origin(self, block: Block) -> int:
        """Address of the segment that a block lies in."""
        # A walk back to it would pass all blocks in between; segments are few, and do not overlap.
        return max(start for start in self._heads if start <= block.address)

    def _release_oversize(self, pool: Pool, size: int) -> bool:  # noqa: ARG002 - never touches expandable segments
        return False

    def _collect_garbage(self) -> None:
        """Garbage collection leaves expandable segments alone."""


def _free_stretch(start: Block, enough: int) -> int:
    """Bytes of free and unmapped blocks from ``start`` on; counting stops at ``enough``."""
    room = 0
    for block in chain_of(start):
        if room >= enough or (block.mapped and not block.free):
            break
        room += block.size
    return room


def _reach(block: Block) -> int:
    """A free block's size with the unmapped space behind it."""
    following = block.next
    return block.size + (following.size if following is not None and not following.mapped else 0)
