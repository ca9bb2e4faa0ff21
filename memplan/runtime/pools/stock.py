"""Free memory of a pool: large blocks on a shelf, small ones in slabs, within a limit and a bound."""

import mmap
from collections.abc import Callable, Sequence
from typing import TypeVar

from memplan.runtime.pools.accounts import Accounts
from memplan.runtime.pools.block import PoolBlock
from memplan.runtime.pools.buckets import rounded
from memplan.runtime.pools.memory import Memory
from memplan.runtime.pools.records import PoolFullError
from memplan.runtime.pools.shelves import Shelf, SmallBlocks
from memplan.runtime.pools.slabs import SLAB
from memplan.units import format_bytes

T = TypeVar("T")

MOST_WASTE = 1 / 8
"""Share of a large block that a request may leave unused, however much fragmentation is allowed."""


class Stock:
    """Finds a block for a request, else asks the system. Not thread-safe: the pool's lock is around it.

    Args:
        memory: Where it comes from.
        accounts: Told what is held, found, asked for and evicted.
        limit: Most bytes held; None: no limit.
        max_fragmentation: Share of what is held that was never asked for at once.
        threshold: Requests of at most so many bytes share slabs.
        tidy: Called before a request is refused: puts back whatever can be.
    """

    def __init__(
        self,
        memory: Memory,
        accounts: Accounts,
        *,
        limit: int | None,
        max_fragmentation: float,
        threshold: int,
        tidy: Callable[[], None],
    ) -> None:
        self.buckets: tuple[int, ...] = ()
        """Sizes of large blocks, increasing."""
        self.expected = 0
        """Bytes that a plan says will be alive at once."""
        self.threshold = threshold if memory.is_kept else -1
        """Most bytes of a small block."""
        self.waste = min(max_fragmentation, MOST_WASTE)
        """Share of a large block that may be wasted."""
        self.limit = limit
        """Most bytes held."""
        self.is_kept = memory.is_kept
        """Is what is put here kept?"""
        self._memory, self._accounts, self._tidy = memory, accounts, tidy
        self._allowed = 1 - max_fragmentation
        self._shelf: Shelf[PoolBlock] = Shelf()
        self._small = SmallBlocks(memory, accounts.hold)

    def cached(self, requested: int) -> PoolBlock | None:
        """A free block of at least so many bytes, if there is one."""
        if requested <= self.threshold:
            return self._small.take(requested)
        return self._shelf.fit(requested, int(requested / (1 - self.waste)))

    def more(self, requested: int) -> PoolBlock:
        """A block from more memory, where none is cached.

        Raises:
            PoolFullError: There is no room within the limit.
        """
        if requested > self.threshold:
            size = self.size_of(requested)
            return self.make(size, self._make_room(size, requested))
        while True:
            self._make_room(SLAB, requested)
            self._small.add(self._allocated(self._memory.slab, SLAB))
            block = self._small.take(requested)
            if block is not None:
                return block

    def put(self, block: PoolBlock) -> None:
        """Keep a block that nobody uses."""
        if block.place is not None:
            self._small.give_back(block.place)
        elif self.is_kept:
            self._shelf.put(block)
        else:
            self._accounts.hold(-block.nbytes)

    def used(self, nbytes: int) -> None:
        """Count a use of a large block of this size: what is used often is kept longer."""
        self._shelf.used(nbytes)

    def drop(self, keep: int) -> None:
        """Give empty slabs back to the system, and large blocks until so many bytes are left."""
        while self._shelf.nbytes > keep and self._evict() is not None:
            pass
        self._drop_slabs(0)

    def compact(self, movable: Sequence[PoolBlock]) -> None:
        """Empty sparse slabs into fuller ones, and give those back that are empty then."""
        self._small.compact(movable)
        self._drop_slabs(0)

    def is_sparse(self, most: float) -> bool:
        """Is more than this share of the slabs free, and at least one slab's worth?"""
        free = self._small.free_bytes
        return free >= SLAB and free > most * self._small.nbytes

    def size_of(self, requested: int) -> int:
        """The size of a large block for so many bytes."""
        return rounded(requested, self.buckets, self.waste) if self.is_kept else requested

    def make(self, size: int, old: mmap.mmap | None = None) -> PoolBlock:
        """A large block from the system, with the pages of ``old`` as far as they go."""
        storage, memory = self._allocated(lambda nbytes: self._memory.whole(nbytes, old), size)
        self._accounts.hold(size)
        return PoolBlock(nbytes=size, storage=storage, memory=memory)

    def _make_room(self, nbytes: int, requested: int) -> mmap.mmap | None:
        """Evict so that what is held stays within the allowed share of what was ever alive at once, and the limit.

        Returns memory of the largest block that was evicted.
        """
        accounts = self._accounts
        live = accounts.in_use + accounts.pending_requested + requested
        bound = max(accounts.peak_live, self.expected, live) / self._allowed
        old = self._evict_until(bound - nbytes, None)
        if self.limit is None or accounts.held + nbytes <= self.limit:
            return old
        self._tidy()
        old = self._evict_until(self.limit - nbytes, old)
        if accounts.held + nbytes > self.limit:
            raise PoolFullError(
                f"{format_bytes(requested)} do not fit: {format_bytes(accounts.in_use)} are in use and "
                f"{format_bytes(accounts.pending)} pending of a limit of {format_bytes(self.limit)}",
                hint="give tensors back earlier (statistics() and taken() say who has them), or raise the limit",
            )
        return old

    def _allocated(self, make: Callable[[int], T], nbytes: int) -> T:
        """Ask for memory; where there is none, once more without what is cached, as CUDA's allocator does."""
        try:
            return make(nbytes)
        except (RuntimeError, OSError):
            if not (self._shelf.nbytes or self._small.empty):
                raise
            self.drop(0)
            return make(nbytes)

    def _evict_until(self, held: float, old: mmap.mmap | None) -> mmap.mmap | None:
        """Large blocks first: a slab serves any small request. Returns memory of the largest, or ``old``."""
        while self._accounts.held > held and (block := self._evict()) is not None:
            if block.memory is not None and (old is None or len(block.memory) > len(old)):
                old = block.memory
        while self._accounts.held > held and self._small.empty:
            self._drop_slabs(self._small.empty - 1)
        return old

    def _drop_slabs(self, keep: int) -> None:
        self._accounts.evictions += self._small.drop_empty(keep)

    def _evict(self) -> PoolBlock | None:
        block = self._shelf.evict()
        if block is not None:
            self._accounts.hold(-block.nbytes)
            self._accounts.evictions += 1
        return block
