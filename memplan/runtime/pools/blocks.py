"""Blocks of a pool: taken, given back, kept, evicted, moved; and exact accounts of all that.

::

    take ──► in use ──give back──► pending ──nobody has a tensor in it──► cached ──evicted──► system
                 ▲                                                          │
                 └──────────────────────────────────────────────────────────┘
"""

import time
from collections import Counter, deque
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

import torch

from memplan.errors import UsageError
from memplan.runtime.pools.accounts import Accounts, Demand
from memplan.runtime.pools.block import Block, Line, Lines, where
from memplan.runtime.pools.buckets import fitted, rounded
from memplan.runtime.pools.memory import Memory, users
from memplan.runtime.pools.records import PoolFullError, Site
from memplan.runtime.pools.shelf import Shelf
from memplan.runtime.pools.slabs import SLAB
from memplan.runtime.pools.small import SmallBlocks
from memplan.units import format_bytes

T = TypeVar("T")

MOST_WASTE = 1 / 8
"""Share of a large block that a request may leave unused, however much fragmentation is allowed."""
LOOKED_AT = 8
"""Pending blocks that each request looks at."""
FIRST_ADJUSTMENT = 64
"""Misses of large blocks after which buckets are fitted; from then on whenever they have doubled."""


class Blocks:
    """Gives out blocks and keeps what comes back. Thread-safe: one lock, held for microseconds or one allocation."""

    def __init__(self, memory: Memory, *, limit: int | None, max_fragmentation: float, threshold: int) -> None:
        self.lock = Lock()
        self.accounts = Accounts()
        self.buckets: tuple[int, ...] = ()
        self.expected = 0
        """Bytes that a plan says will be alive at once."""
        self.dropped: deque[Block] = deque()
        """Of handles that were garbage. Appended to without the lock: a finalizer may run while it is held."""
        self.leaks = Lines()
        self.taken: set[Block] = set()
        self.is_closed = False
        self._memory, self._limit, self._threshold = memory, limit, threshold if memory.is_kept else -1
        self._allowed = 1 - max_fragmentation
        self._waste = min(max_fragmentation, MOST_WASTE)
        self._pending: deque[Block] = deque()
        self._shelf: Shelf[Block] = Shelf()
        self._small = SmallBlocks(memory, self.accounts.hold)
        self._demand = Demand()
        self._large_misses, self._next_adjustment = 0, FIRST_ADJUSTMENT

    def take(self, requested: int, line: Line, *, may_move: bool = False) -> Block:
        """A block of at least so many bytes.

        Args:
            requested: How many.
            line: Who asks.
            may_move: Is its storage looked up each time?

        Raises:
            PoolFullError: There is no room within the limit.
            UsageError: The pool is closed.
        """
        started = time.perf_counter_ns()
        with self.lock:
            if self.is_closed:
                raise UsageError("the pool is closed", where=where(line))
            self.tidy(LOOKED_AT)
            block = self._take_small(requested) if requested <= self._threshold else self._take_large(requested)
            block.requested, block.line, block.may_move = requested, line, may_move
            self.taken.add(block)
            self.accounts.take(requested, block.nbytes)
            is_due = self._large_misses >= self._next_adjustment
            if is_due:
                self._next_adjustment = 2 * self._large_misses
            self.accounts.timed(time.perf_counter_ns() - started)
        if is_due:
            self.adjust()
        return block

    def give_back(self, block: Block) -> None:
        """Take a block back; it is used again when nobody has a tensor in it."""
        with self.lock:
            self._give_back(block)

    def adjust(self) -> tuple[int, ...]:
        """Fit the buckets to the sizes that were asked for. The lock is not held while it computes."""
        with self.lock:
            most = self._demand.most_alive()
        # Rounding may use half of what is allowed, so that as much is left for blocks that wait.
        found = fitted(most, most_waste=self._waste / 2)
        with self.lock:
            self.buckets = found
        return found

    def prepare(self, most: Counter[int], touch: Callable[[torch.UntypedStorage], None] | None) -> None:
        """Allocate large blocks before they are asked for, and expect these sizes. Slabs come as they are asked for.

        Args:
            most: Size → blocks.
            touch: Done to each storage outside of the lock, as to write to every page; None: nothing.

        Raises:
            PoolFullError: They do not fit within the limit; nothing is allocated.
        """
        total = sum(size * count for size, count in most.items())
        large = Counter({size: count for size, count in most.items() if size > self._threshold})
        with self.lock:
            self._demand.seed(large)
            self.expected = max(self.expected, total)
        self.adjust()
        sizes = [rounded(size, self.buckets, self._waste) for size in large.elements() if self._memory.is_kept]
        if self._limit is not None and self.accounts.held + sum(sizes) > self._limit:
            raise PoolFullError(
                f"a plan of {format_bytes(total)} does not fit within the limit of {format_bytes(self._limit)}",
                hint="raise the limit, or trim() the pool first",
            )
        for size in sizes:
            with self.lock:
                block = self._new(size)
            if touch:
                touch(block.storage)
            with self.lock:
                self._shelf.put(block)

    def trim(self, keep: int = 0) -> int:
        """Give cached blocks and empty slabs back to the system until no more than so much is cached.

        Returns:
            Bytes given back.
        """
        with self.lock:
            before = self.accounts.held
            self.tidy_all()
            while self._shelf.nbytes > keep and self._evict():
                pass
            self.accounts.evictions += self._small.drop_empty(0)
            return before - self.accounts.held

    def close(self) -> None:
        """Give everything back that nobody uses, and from now on whatever comes back."""
        with self.lock:
            self.is_closed = True
        self.trim()

    def tidy(self, most: int) -> None:
        """Take back what was dropped, and look at pending blocks. The lock must be held.

        Args:
            most: So many of them, the oldest first.
        """
        while self.dropped:
            block = self.dropped.popleft()
            self.accounts.leaks += 1
            self.leaks.add(block)
            self._give_back(block)
        for _ in range(min(most, len(self._pending))):
            block = self._pending.popleft()
            if block.is_idle:
                self._settle(block)
            else:
                self._pending.append(block)

    def tidy_all(self) -> None:
        """The same with all pending blocks."""
        self.tidy(len(self._pending))

    def compact(self) -> int:
        """Empty sparse slabs into fuller ones, and give those back that are empty then.

        Returns:
            Bytes given back.
        """
        with self.lock:
            before = self.accounts.held
            self.tidy_all()
            self._small.compact([block for block in self.taken if block.place and block.may_move and block.is_idle])
            self.accounts.evictions += self._small.drop_empty(0)
            return before - self.accounts.held

    def sites(self, *, leaked: bool) -> tuple[Site, ...]:
        """Lines whose tensors are taken, or were dropped without giving back; most bytes first."""
        with self.lock:
            self.tidy(LOOKED_AT)
            return (self.leaks if leaked else Lines(self.taken)).sites()

    def _give_back(self, block: Block) -> None:
        self.taken.discard(block)
        self.accounts.give_back(block.requested, block.nbytes)
        if block.place is None:
            self._demand.end(block.requested)
        if block.is_idle or not self._memory.is_kept:
            self._settle(block)
        else:
            self._pending.append(block)

    def _settle(self, block: Block) -> None:
        """A block that nobody uses: its place is free, or it goes to the shelf."""
        self.accounts.settle(block.requested, block.nbytes)
        if block.place is not None:
            self._small.give_back(block.place)
            # One stays, so that a tensor that comes and goes alone does not bring a slab with it each time.
            self.accounts.evictions += self._small.drop_empty(0 if self.is_closed else 1)
        elif self._memory.is_kept and not self.is_closed:
            self._shelf.put(block)
        else:
            self.accounts.hold(-block.nbytes)

    def _take_small(self, requested: int) -> Block:
        block = self._small.take(requested)
        self.accounts.hits += block is not None
        while block is None:
            self._make_room(SLAB, requested)
            self._small.add(self._allocated(self._memory.slab, SLAB))
            block = self._small.take(requested)
            self.accounts.misses += 1
        return block

    def _take_large(self, requested: int) -> Block:
        block = self._shelf.fit(requested, int(requested / (1 - self._waste)))
        self.accounts.hits += block is not None
        if block is None:
            size = rounded(requested, self.buckets, self._waste) if self._memory.is_kept else requested
            self._make_room(size, requested)
            block = self._new(size)
            self.accounts.misses += 1
            self._large_misses += 1
        self._shelf.used(block.nbytes)
        self._demand.begin(requested)
        return block

    def _new(self, size: int) -> Block:
        storage = self._allocated(self._memory.whole, size)
        self.accounts.hold(size)
        return Block(nbytes=size, storage=storage, idle=users(storage))

    def _make_room(self, nbytes: int, requested: int) -> None:
        """Evict so that what is held stays within the allowed share of what was ever alive at once, and the limit."""
        accounts = self.accounts
        live = accounts.in_use + accounts.pending_requested + requested
        bound = max(accounts.peak_live, self.expected, live) / self._allowed
        while accounts.held + nbytes > bound and self._evict():
            pass
        if self._limit is None or accounts.held + nbytes <= self._limit:
            return
        self.tidy_all()
        accounts.evictions += self._small.drop_empty(0)
        while accounts.held + nbytes > self._limit and self._evict():
            pass
        if accounts.held + nbytes > self._limit:
            raise PoolFullError(
                f"{format_bytes(requested)} do not fit: {format_bytes(accounts.in_use)} are in use and "
                f"{format_bytes(accounts.pending)} pending of a limit of {format_bytes(self._limit)}",
                hint="give tensors back earlier (statistics() and taken() say who has them), or raise the limit",
            )

    def _allocated(self, make: Callable[[int], T], nbytes: int) -> T:
        """Ask for memory; where there is none, once more without what is cached, as CUDA's allocator does."""
        try:
            return make(nbytes)
        except (RuntimeError, OSError):
            if not (self._shelf.nbytes or self._small.empty):
                raise
            self.accounts.evictions += self._small.drop_empty(0)
            while self._evict():
                pass
            return make(nbytes)

    def _evict(self) -> bool:
        block = self._shelf.evict()
        if block is not None:
            self.accounts.hold(-block.nbytes)
            self.accounts.evictions += 1
        return block is not None
