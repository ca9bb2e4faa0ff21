"""What Prometheus reads of tensor pools: their accounts, by the label ``pool``."""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from memplan.runtime.metrics.families import filled, utf8
from memplan.runtime.metrics.table import Metric
from memplan.runtime.pools.records import PoolBucket, PoolStatistics

if TYPE_CHECKING:
    from prometheus_client import Metric as Family


class CountedPool(Protocol):
    """What has accounts; ``TensorPool`` does."""

    def statistics(self) -> PoolStatistics:
        """What they are now."""


POOL: tuple[Metric[PoolStatistics], ...] = (
    Metric(
        name="memplan_pool_in_use_bytes",
        help="Requested bytes of what is taken from the pool.",
        value=lambda of: of.in_use_bytes,
    ),
    Metric(
        name="memplan_pool_wasted_bytes",
        help="Bytes of the same blocks that nobody asked for: rounding.",
        value=lambda of: of.wasted_bytes,
    ),
    Metric(
        name="memplan_pool_pending_bytes",
        help="Bytes given back in which somebody still has a tensor.",
        value=lambda of: of.pending_bytes,
    ),
    Metric(
        name="memplan_pool_cached_bytes",
        help="Bytes that are held, and free.",
        value=lambda of: of.cached_bytes,
    ),
    Metric(
        name="memplan_pool_held_bytes",
        help="All bytes of the pool: in use, wasted, pending and cached.",
        value=lambda of: of.held_bytes,
    ),
    Metric(
        name="memplan_pool_hits",
        help="Requests served from memory that was held already.",
        value=lambda of: of.hits,
        kind="counter",
    ),
    Metric(
        name="memplan_pool_misses",
        help="Requests for which more memory was asked of the system.",
        value=lambda of: of.misses,
        kind="counter",
    ),
    Metric(
        name="memplan_pool_evictions",
        help="Cached blocks and slabs that were given up.",
        value=lambda of: of.evictions,
        kind="counter",
    ),
    Metric(
        name="memplan_pool_compactions",
        help="Times that sparse slabs were emptied because free bytes passed the pool's threshold.",
        value=lambda of: of.compactions,
        kind="counter",
    ),
    Metric(
        name="memplan_pool_leaks",
        help="Handles that were dropped without giving back.",
        value=lambda of: of.leaks,
        kind="counter",
    ),
)
"""For every pool."""

BUCKET: tuple[Metric[PoolBucket], ...] = (
    Metric(
        name="memplan_pool_bucket_blocks",
        help="Blocks of about this size that are taken.",
        value=lambda of: of.blocks,
    ),
    Metric(
        name="memplan_pool_bucket_in_use_bytes",
        help="Requested bytes of them.",
        value=lambda of: of.in_use_bytes,
    ),
    Metric(
        name="memplan_pool_bucket_wasted_bytes",
        help="Their other bytes: rounding.",
        value=lambda of: of.wasted_bytes,
    ),
    Metric(
        name="memplan_pool_bucket_hits",
        help="Requests for about this size that were served from memory that was held already.",
        value=lambda of: of.hits,
        kind="counter",
    ),
    Metric(
        name="memplan_pool_bucket_misses",
        help="Requests for about this size for which more memory was asked of the system.",
        value=lambda of: of.misses,
        kind="counter",
    ),
)
"""For every pool, with ``bucket``: the power of two that blocks fit in, in bytes."""

TAKE = "memplan_pool_take_seconds"
"""The histogram."""
LABELS = ("pool", "job")
"""Of all of them."""
BUCKET_LABELS = ("pool", "bucket", "job")
"""Of those by size."""


def pool_families(pools: Mapping[str, CountedPool], job: str) -> "Iterator[Family]":
    """Families of the accounts of all pools, each pool's of one moment; none where there are no pools."""
    from prometheus_client import core

    if not pools:
        return
    found = {(utf8(name), job): pool.statistics() for name, pool in pools.items()}
    yield from filled(POOL, LABELS, found.items())
    by_size = (
        ((name, str(bucket.upto_bytes), job), bucket) for (name, _), of in found.items() for bucket in of.buckets
    )
    yield from filled(BUCKET, BUCKET_LABELS, by_size)
    family = core.HistogramMetricFamily(TAKE, "Time until a request had its memory.", labels=LABELS)
    for labels, of in found.items():
        times = of.take_seconds
        bounds = (*map(str, times.bounds), "+Inf")
        family.add_metric(labels, list(zip(bounds, accumulate(times.counts), strict=True)), sum_value=times.sum)
    yield family
