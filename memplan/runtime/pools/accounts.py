"""A pool's counters. Torch-free; not thread-safe: the pool's lock is around them."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from memplan.runtime.pools.buckets import TOLD_APART, stepped
from memplan.runtime.pools.records import TIME_BOUNDS, PoolBucket, PoolStatistics, TimeHistogram
from memplan.units import Bytes


@dataclass(slots=True)
class _Bucket:
    """What is counted of blocks of about one size."""

    hits: int = 0
    misses: int = 0
    blocks: int = 0
    in_use: int = 0
    wasted: int = 0


@dataclass(slots=True)
class Accounts:
    """What is counted as it happens; the rest of the statistics follows from it."""

    hits: int = 0
    misses: int = 0
    returns: int = 0
    leaks: int = 0
    evictions: int = 0
    compactions: int = 0
    in_use: int = 0
    """Requested bytes of what is taken."""
    wasted: int = 0
    """Other bytes of the same blocks."""
    pending: int = 0
    """Bytes of pending blocks."""
    pending_requested: int = 0
    """What was requested of them."""
    held: int = 0
    peak_live: int = 0
    peak_held: int = 0
    nanoseconds: int = 0
    times: list[int] = field(default_factory=lambda: [0] * (len(TIME_BOUNDS) + 1))
    buckets: dict[int, _Bucket] = field(default_factory=dict)
    """Power of two that a block fits in → its accounts."""

    def hold(self, nbytes: int) -> None:
        """More is held, or less."""
        self.held += nbytes
        self.peak_held = max(self.peak_held, self.held)

    def take(self, requested: int, nbytes: int, is_more: bool, nanoseconds: int) -> None:
        """A block goes out; more memory was asked for, or not; and it took so long."""
        power = (nbytes - 1).bit_length() if nbytes else 0
        bucket = self.buckets.get(power)
        if bucket is None:
            bucket = self.buckets[power] = _Bucket()
        if is_more:
            self.misses += 1
            bucket.misses += 1
        else:
            self.hits += 1
            bucket.hits += 1
        wasted = nbytes - requested
        bucket.blocks += 1
        bucket.in_use += requested
        bucket.wasted += wasted
        self.in_use += requested
        self.wasted += wasted
        live = self.in_use + self.pending_requested
        self.peak_live = max(self.peak_live, live)
        self.nanoseconds += nanoseconds
        self.times[bisect_left(_BOUNDS, nanoseconds)] += 1

    def give_back(self, requested: int, nbytes: int, is_free: bool) -> None:
        """A block comes back; where it is not free it is pending until somebody looks."""
        bucket = self.buckets[(nbytes - 1).bit_length() if nbytes else 0]
        bucket.blocks -= 1
        bucket.in_use -= requested
        bucket.wasted -= nbytes - requested
        self.returns += 1
        self.in_use -= requested
        self.wasted -= nbytes - requested
        if not is_free:
            self.pending += nbytes
            self.pending_requested += requested

    def settle(self, requested: int, nbytes: int) -> None:
        """Nobody has a tensor in a pending block any more."""
        self.pending -= nbytes
        self.pending_requested -= requested

    def statistics(self) -> PoolStatistics:
        """All of it as a record."""
        return PoolStatistics(
            takes=self.hits + self.misses,
            hits=self.hits,
            misses=self.misses,
            returns=self.returns,
            leaks=self.leaks,
            evictions=self.evictions,
            compactions=self.compactions,
            in_use_bytes=Bytes(self.in_use),
            wasted_bytes=Bytes(self.wasted),
            pending_bytes=Bytes(self.pending),
            cached_bytes=Bytes(self.held - self.in_use - self.wasted - self.pending),
            held_bytes=Bytes(self.held),
            peak_in_use_bytes=Bytes(self.peak_live),
            peak_held_bytes=Bytes(self.peak_held),
            take_seconds=TimeHistogram(bounds=TIME_BOUNDS, counts=tuple(self.times), sum=self.nanoseconds / 1e9),
            buckets=tuple(
                PoolBucket(
                    upto_bytes=Bytes(1 << power),
                    hits=of.hits,
                    misses=of.misses,
                    blocks=of.blocks,
                    in_use_bytes=Bytes(of.in_use),
                    wasted_bytes=Bytes(of.wasted),
                )
                for power, of in sorted(self.buckets.items())
            ),
        )


_BOUNDS = tuple(round(bound * 1e9) for bound in TIME_BOUNDS)
"""In nanoseconds."""


class SizeDemand:
    """The sizes that were asked for, to a tenth of a percent: how many of each were alive at once."""

    def __init__(self) -> None:
        self._alive: dict[int, int] = {}
        self._most: dict[int, int] = {}
        self._steps: dict[int, int] = {}
        """Size → the size as which it counts, for a few."""

    def begin(self, nbytes: int) -> None:
        """One more is alive."""
        size = self._stepped(nbytes)
        alive = self._alive[size] = self._alive.get(size, 0) + 1
        if alive > self._most.get(size, 0):
            self._most[size] = alive

    def end(self, nbytes: int) -> None:
        """One less."""
        size = self._stepped(nbytes)
        alive = self._alive[size] - 1
        if alive:
            self._alive[size] = alive
        else:
            del self._alive[size]

    def seed(self, most: Counter[int]) -> None:
        """What is known beforehand."""
        for nbytes, count in most.items():
            size = self._stepped(nbytes)
            self._most[size] = self._most.get(size, 0) + count

    def most_alive(self) -> Counter[int]:
        """Size → most alive at once. What came before the last call counts half, so that old sizes are forgotten."""
        found = +Counter(self._most)
        halves = Counter({size: count // 2 for size, count in found.items() if count > 1})
        self._most = dict(halves | Counter(self._alive))
        return found

    def _stepped(self, nbytes: int) -> int:
        size = self._steps.get(nbytes)
        if size is None:
            if len(self._steps) >= TOLD_APART:
                self._steps.clear()
            size = self._steps[nbytes] = stepped(nbytes, TOLD_APART)
        return size
