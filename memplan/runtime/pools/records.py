"""What a pool tells about itself. Torch-free."""

from dataclasses import dataclass

from memplan.errors import MemplanError
from memplan.units import Bytes

TIME_BOUNDS = (
    *(1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5),
    *(1e-4, 2e-4, 5e-4, 1e-3, 1e-2, 1e-1),
)  # fmt: skip
"""Upper bounds of the histogram of times, in seconds; fixed, so that histograms of many processes can be summed."""


class PoolFullError(MemplanError):
    """A request does not fit within the pool's limit, even with nothing cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeHistogram:
    """How long something took, as Prometheus counts it."""

    bounds: tuple[float, ...]
    """Upper bounds in seconds."""
    counts: tuple[int, ...]
    """Events up to each bound and above the one before; one more for those beyond the last."""
    sum: float
    """Seconds of all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolBucket:
    """Accounts of the blocks between one power of two and the next; the sums over all of them are the pool's."""

    upto_bytes: Bytes
    """Size of the largest block that counts here."""
    hits: int
    """Requests served from memory that was held already."""
    misses: int
    """The others."""
    blocks: int
    """Blocks that are taken."""
    in_use_bytes: Bytes
    """Requested bytes of them."""
    wasted_bytes: Bytes
    """Their other bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatistics:
    """A pool's accounts at one moment: ``in_use + wasted + pending + cached == held``."""

    takes: int
    """Requests served."""
    hits: int
    """Of them, from memory that was held already."""
    misses: int
    """The others: more memory was asked for."""
    returns: int
    """Blocks given back, leaks among them."""
    leaks: int
    """Handles that were dropped without giving back."""
    evictions: int
    """Cached blocks and slabs that were given up."""
    compactions: int = 0
    """Times that sparse slabs were emptied because free bytes passed the pool's threshold."""
    in_use_bytes: Bytes
    """Requested bytes of what is taken."""
    wasted_bytes: Bytes
    """Bytes of the same blocks that nobody asked for: rounding."""
    pending_bytes: Bytes
    """Blocks given back in which somebody still has a tensor."""
    cached_bytes: Bytes
    """Held, and free."""
    held_bytes: Bytes
    """All of the above."""
    peak_in_use_bytes: Bytes
    """Most requested bytes alive at once, those of pending blocks among them."""
    peak_held_bytes: Bytes
    """Most bytes held at once."""
    take_seconds: TimeHistogram
    """Time until a request had its block, waiting and misses included; making the tensor comes on top (3 µs)."""
    buckets: tuple[PoolBucket, ...] = ()
    """By size, the smallest first."""

    @property
    def fragmentation(self) -> float:
        """Share of the most bytes held that was never asked for at once: (held - live peak) / held."""
        return 1 - self.peak_in_use_bytes / self.peak_held_bytes if self.peak_held_bytes else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSite:
    """Tensors that one line took."""

    where: str
    """``file:line``."""
    count: int
    """How many."""
    nbytes: Bytes
    """Requested bytes of all of them."""
