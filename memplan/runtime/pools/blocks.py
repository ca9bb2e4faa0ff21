"""Blocks of a pool: taken, given back, given out again; and exact accounts of all that.

::

    take ──► in use ──give back──► pending ──nobody has a tensor in it──► fresh ──sorted──► stock ──evicted──► system
                 ▲                                                          │                 │
                 └──────────────── the same size ───────────────────────────┴─── any size ────┘
"""

import time
from collections import Counter, deque
from collections.abc import Callable
from threading import Lock

import torch

from memplan.errors import UsageError
from memplan.runtime.pools.accounts import Accounts, SizeDemand
from memplan.runtime.pools.block import Line, Lines, PoolBlock, where
from memplan.runtime.pools.buckets import fitted
from memplan.runtime.pools.fresh import Fresh
from memplan.runtime.pools.memory import Memory
from memplan.runtime.pools.records import PoolFullError, PoolSite
from memplan.runtime.pools.slabs import SLAB
from memplan.runtime.pools.stock import Stock
from memplan.units import format_bytes

LOOKED_AT = 8
"""Pending blocks that each request looks at."""
FIRST_ADJUSTMENT = 64
"""Misses of large blocks after which buckets are fitted; from then on whenever they have doubled."""


class Blocks:
    """Gives out blocks and takes them back. Thread-safe: one lock, held for microseconds or one allocation."""

    def __init__(
        self,
        memory: Memory,
        *,
        limit: int | None,
        max_fragmentation: float,
        threshold: int,
        compact_at: float | None = None,
    ) -> None:
        self.lock = Lock()
        self.accounts = Accounts()
        self.dropped: deque[PoolBlock] = deque()
        """Of handles that were garbage. Appended to without the lock: a finalizer may run while it is held."""
        self.leaks = Lines()
        self.taken: set[PoolBlock] = set()
        self.is_closed = False
        self._pending: deque[PoolBlock] = deque()
        self._fresh: Fresh[PoolBlock] = Fresh()
        self._stock = Stock(
            memory,
            self.accounts,
            limit=limit,
            max_fragmentation=max_fragmentation,
            threshold=threshold,
            tidy=self.tidy_all,
        )
        self._demand = SizeDemand()
        self._compact_at, self._given_back = compact_at, 0
        self._large_misses, self._next_adjustment = 0, FIRST_ADJUSTMENT

    def take(self, requested: int, line: Line, *, may_move: bool = False) -> PoolBlock:
        """A block of at least so many bytes for a line; ``may_move``: its storage is looked up each time.

        Raises:
            PoolFullError: There is no room within the limit.
            UsageError: The pool is closed.
        """
        started = time.perf_counter_ns()
        with self.lock:
            if self.is_closed:
                raise UsageError("the pool is closed", where=where(line))
            if self.dropped or self._pending:
                self.tidy(LOOKED_AT)
            block, is_more = self._fresh.take(requested), False
            if block is None:
                block, is_more = self._found(requested)
                block.requested = requested
            block.line, block.may_move = line, may_move
            self.taken.add(block)
            if block.place is None:
                self._stock.used(block.nbytes)
                self._demand.begin(requested)
                self._large_misses += is_more
            is_due = self._large_misses >= self._next_adjustment
            if is_due:
                self._next_adjustment = 2 * self._large_misses
            self.accounts.take(requested, block.nbytes, is_more, time.perf_counter_ns() - started)
        if is_due:
            self.adjust()
        return block

    def give_back(self, block: PoolBlock) -> None:
        """Take a block back; it is used again when nobody has a tensor in it."""
        with self.lock:
            self._give_back(block)

    def adjust(self) -> tuple[int, ...]:
        """Fit the buckets to the sizes that were asked for. The lock is not held while it computes."""
        with self.lock:
            most = self._demand.most_alive()
        # Rounding may use half of what is allowed, so that as much is left for blocks that wait.
        found = fitted(most, most_waste=self._stock.waste / 2)
        with self.lock:
            self._stock.buckets = found
        return found

    def prepare(self, most: Counter[int], touch: Callable[[torch.UntypedStorage], None] | None) -> None:
        """Allocate large blocks before they are asked for, and expect these sizes. Slabs come as they are asked for.

        ``touch`` is done to each storage outside of the lock, as to write to every page.

        Raises:
            PoolFullError: They do not fit within the limit; nothing is allocated.
        """
        stock = self._stock
        total = sum(size * count for size, count in most.items())
        large = Counter({size: count for size, count in most.items() if size > stock.threshold})
        with self.lock:
            self._demand.seed(large)
            stock.expected = max(stock.expected, total)
        self.adjust()
        sizes = [stock.size_of(size) for size in large.elements() if stock.is_kept]
        if stock.limit is not None and self.accounts.held + sum(sizes) > stock.limit:
            raise PoolFullError(
                f"a plan of {format_bytes(total)} does not fit within the limit of {format_bytes(stock.limit)}",
                hint="raise the limit, or trim() the pool first",
            )
        for size in sizes:
            with self.lock:
                block = stock.make(size)
            if touch:
                touch(block.storage)
            with self.lock:
                stock.put(block)

    def trim(self, keep: int = 0) -> int:
        """Give cached blocks and empty slabs back until no more than so much is cached; returns the bytes."""
        with self.lock:
            before = self.accounts.held
            self.tidy_all()
            self._stock.drop(keep)
            return before - self.accounts.held

    def close(self) -> None:
        """Give everything back that nobody uses, and from now on whatever comes back."""
        with self.lock:
            self.is_closed = True
        self.trim()

    def tidy(self, most: int | None = None) -> None:
        """Take back what was dropped, and look at so many pending blocks, the oldest first. The lock must be held."""
        while self.dropped:
            block = self.dropped.popleft()
            self.accounts.leaks += 1
            self.leaks.add(block)
            self._give_back(block)
        number = len(self._pending)
        for _ in range(number if most is None else min(most, number)):
            block = self._pending.popleft()
            if block.is_idle:
                self.accounts.settle(block.requested, block.nbytes)
                self._keep(block)
            else:
                self._pending.append(block)

    def tidy_all(self) -> None:
        """The same with all, and put all that is free where it can be evicted. The lock must be held."""
        self.tidy()
        self._sort()

    def compact(self) -> int:
        """Empty sparse slabs into fuller ones, and give those that are then empty back; returns the bytes."""
        with self.lock:
            return self._compact()

    def sites(self, *, leaked: bool) -> tuple[PoolSite, ...]:
        """Lines whose tensors are taken, or were dropped without giving back; most bytes first."""
        with self.lock:
            self.tidy(LOOKED_AT)
            return (self.leaks if leaked else Lines(self.taken)).sites()

    def _found(self, requested: int) -> tuple[PoolBlock, bool]:
        """A block from the stock, and whether more memory was asked for."""
        stock = self._stock
        block = stock.cached(requested)
        if block is None:
            # No more than must be: what is sorted is no longer at hand for the next request of its size.
            self._sort(stock.threshold if requested <= stock.threshold else None)
            block = stock.cached(requested)
        if block is not None:
            return block, False
        self._sort()
        return stock.more(requested), True

    def _give_back(self, block: PoolBlock) -> None:
        self.taken.discard(block)
        if block.place is None:
            self._demand.end(block.requested)
        small = 0 if block.place is None else block.nbytes
        is_free = block.is_idle or not self._stock.is_kept
        self.accounts.give_back(block.requested, block.nbytes, is_free)
        if is_free:
            self._keep(block)
        else:
            self._pending.append(block)
        if small and self._compact_at is not None:
            self._compact_if_sparse(small, self._compact_at)

    def _compact_if_sparse(self, nbytes: int, most: float) -> None:
        """Compact where too much of the slabs is free; looked at once for each slab's worth that comes back."""
        self._given_back += nbytes
        if self._given_back < SLAB:
            return
        self._given_back = 0
        self.tidy_all()
        if self._stock.is_sparse(most):
            self.accounts.compactions += 1
            self._compact()

    def _compact(self) -> int:
        before = self.accounts.held
        self.tidy_all()
        self._stock.compact([block for block in self.taken if block.place and block.may_move and block.is_idle])
        return before - self.accounts.held

    def _keep(self, block: PoolBlock) -> None:
        """A block that nobody uses."""
        if self.is_closed or not self._stock.is_kept:
            self._stock.put(block)
            if self.is_closed:
                self._stock.drop(0)
        elif not self._fresh.put(block):
            self._sort()

    def _sort(self, most: int | None = None) -> None:
        """What came back lately to the stock: all, or requests of at most so many bytes."""
        for block in self._fresh.clear(most):
            self._stock.put(block)
