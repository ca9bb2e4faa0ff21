"""Blocks of memory in address order, and pools that find the best fitting free one."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final

from memplan.replay.records import DEFAULT_POOL

ADDRESS_BITS: Final = 56
"""Pools sort blocks by ``size << ADDRESS_BITS | address``: one integer compares faster than a pair. CUDA's addresses
have at most 57 bits in theory; all that were ever seen fit in 48."""
FIRST_ADDRESS: Final = 0x7F0000000000
"""Where the first segment lies: where CUDA's lie on Linux, and below 2**53, which JavaScript can count to."""


class Block:
    """A stretch of one segment. Mutable, unlike records: an allocator changes a few million of them per second of work.

    ``previous`` and ``next`` are the neighbours in address order within the segment; the first block of a segment stays
    the same object for the segment's life.
    """

    __slots__ = ("address", "free", "mapped", "next", "pool", "previous", "requested", "since", "size")

    def __init__(self, pool: "Pool", address: int, size: int) -> None:
        self.pool = pool
        self.address = address
        self.size = size
        self.requested = 0
        self.free = False
        self.mapped = True
        self.previous: Block | None = None
        self.next: Block | None = None
        # Searches of the large pools when the block became free: the age of a whole segment, for garbage collection.
        self.since = 0

    @property
    def is_split(self) -> bool:
        """Is it only a part of its segment?"""
        return self.previous is not None or self.next is not None

    def cut(self, size: int) -> "Block":
        """Keep the first ``size`` bytes and return the rest as the next block."""
        rest = Block(self.pool, self.address + size, self.size - size)
        rest.mapped = self.mapped
        rest.previous = self
        rest.next = following = self.next
        if following is not None:
            following.previous = rest
        self.next = rest
        self.size = size
        return rest

    def absorb(self, following: "Block") -> None:
        """Take over the next block's bytes; the inverse of ``cut``."""
        self.size += following.size
        self.next = after = following.next
        if after is not None:
            after.previous = self


class Pool:
    """Free blocks of one stream and one size class (small or large), of the default pool or a private one."""

    __slots__ = ("ages", "blocks", "keys", "least_segment", "owner", "small", "stream", "unit")

    def __init__(self, stream: int, small: bool, owner: int = DEFAULT_POOL, unit: int = 0) -> None:
        self.stream = stream
        self.small = small
        self.owner = owner
        # Bytes that the device maps and unmaps at once; 0 where it gives whole segments.
        self.unit = unit
        # Garbage collection knows the default pool's large blocks alone, and only searches among them age them.
        self.ages = not small and owner == DEFAULT_POOL
        # No smaller block is a whole segment, which saves a flush the walk over the holes of a fragmented pool.
        self.least_segment = 1 << ADDRESS_BITS
        self.keys: list[int] = []
        self.blocks: dict[int, Block] = {}

    def insert(self, block: Block) -> None:
        """Offer a block for reuse."""
        block.free = True
        key = block.size << ADDRESS_BITS | block.address
        insort(self.keys, key)
        self.blocks[key] = block

    def remove(self, block: Block) -> None:
        """Withdraw a block, before its size or address changes."""
        block.free = False
        key = block.size << ADDRESS_BITS | block.address
        del self.keys[bisect_left(self.keys, key)]
        del self.blocks[key]

    def position(self, size: int) -> int:
        """Index in ``keys`` of the smallest block of at least ``size`` bytes, lowest address first."""
        return bisect_left(self.keys, size << ADDRESS_BITS)

    def at(self, index: int) -> Block:
        """The block at an index of ``keys``."""
        return self.blocks[self.keys[index]]

    def at_least(self, size: int) -> list[Block]:
        """Blocks of at least ``size`` bytes, smallest first; the list stays as it is when the pool changes."""
        return [self.blocks[key] for key in self.keys[self.position(size) :]]


def chain_of(first: Block) -> Iterator[Block]:
    """A block and all that follow it in its segment."""
    block: Block | None = first
    while block is not None:
        yield block
        block = block.next


def mapped_runs(head: Block) -> Iterator[list[Block]]:
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
