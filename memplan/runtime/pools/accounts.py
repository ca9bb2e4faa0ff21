"""A pool's counters. Torch-free; not thread-safe: the pool's lock is around them."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from memplan.runtime.pools.buckets import TOLD_APART, stepped
from memplan.runtime.pools.records import TIME_BOUNDS, PoolStatistics, TimeHistogram
from memplan.units import Bytes


@dataclass(slots=True)
class Accounts:
    """What is counted as it happens; the rest of the statistics follows from it."""

    hits: int = 0
    misses: int = 0
    returns: int = 0
    leaks: int = 0
    evictions: int = 0
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

    def hold(self, nbytes: int) -> None:
        """More is held, or less."""
        self.held += nbytes
        self.peak_held = max(self.peak_held, self.held)

    def take(self, requested: int, nbytes: int) -> None:
        """A block goes out."""
        self.in_use += requested
        self.wasted += nbytes - requested
        self.peak_live = max(self.peak_live, self.in_use + self.pending_requested)

    def give_back(self, requested: int, nbytes: int) -> None:
        """A block comes back: it is pending until somebody looks."""
        self.returns += 1
        self.in_use -= requested
        self.wasted -= nbytes - requested
        self.pending += nbytes
        self.pending_requested += requested

    def settle(self, requested: int, nbytes: int) -> None:
        """Nobody has a tensor in a pending block any more."""
        self.pending -= nbytes
        self.pending_requested -= requested

    def timed(self, nanoseconds: int) -> None:
        """A request took so long."""
        self.nanoseconds += nanoseconds
        self.times[bisect_left(_BOUNDS, nanoseconds)] += 1

    def reset_peaks(self) -> None:
        """Let the peaks begin anew."""
        self.peak_live, self.peak_held = self.in_use + self.pending_requested, self.held

    def statistics(self) -> PoolStatistics:
        """All of it as a record."""
        return PoolStatistics(
            takes=self.hits + self.misses,
            hits=self.hits,
            misses=self.misses,
            returns=self.returns,
            leaks=self.leaks,
            evictions=self.evictions,
            in_use_bytes=Bytes(self.in_use),
            wasted_bytes=Bytes(self.wasted),
            pending_bytes=Bytes(self.pending),
            cached_bytes=Bytes(self.held - self.in_use - self.wasted - self.pending),
            held_bytes=Bytes(self.held),
            peak_in_use_bytes=Bytes(self.peak_live),
            peak_held_bytes=Bytes(self.peak_held),
            take_seconds=TimeHistogram(bounds=TIME_BOUNDS, counts=tuple(self.times), sum=self.nanoseconds / 1e9),
        )


_BOUNDS = tuple(round(bound * 1e9) for bound in TIME_BOUNDS)
"""In nanoseconds."""


class Demand:
    """The sizes that were asked for, to a tenth of a percent: how many of each were alive at once."""

    def __init__(self) -> None:
        self._alive: Counter[int] = Counter()
        self._most: Counter[int] = Counter()

    def begin(self, nbytes: int) -> None:
        """One more is alive."""
        size = stepped(nbytes, TOLD_APART)
        self._alive[size] += 1
        self._most[size] = max(self._most[size], self._alive[size])

    def end(self, nbytes: int) -> None:
        """One less."""
        size = stepped(nbytes, TOLD_APART)
        self._alive[size] -= 1
        if not self._alive[size]:
            del self._alive[size]

    def seed(self, most: Counter[int]) -> None:
        """What is known beforehand."""
        for size, count in most.items():
            self._most[stepped(size, TOLD_APART)] += count

    def most_alive(self) -> Counter[int]:
        """Size → most alive at once. What came before the last call counts half, so that old sizes are forgotten."""
        found = +self._most
        self._most = Counter({size: count // 2 for size, count in found.items() if count > 1}) | self._alive
        return found
