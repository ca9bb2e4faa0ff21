"""What Prometheus reads of tensor pools: their accounts, by the label ``pool``."""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from memplan.runtime.metrics.table import filled, metrics, utf8
from memplan.runtime.pools.records import PoolBucket, PoolStatistics

if TYPE_CHECKING:
    from prometheus_client import Metric as Family


class CountedPool(Protocol):
    """What has accounts; ``TensorPool`` does."""

    def statistics(self) -> PoolStatistics:
        """What they are now."""


POOL = metrics(
    PoolStatistics,
    ("memplan_pool_in_use_bytes", "in_use_bytes", "Requested bytes of what is taken from the pool."),
    ("memplan_pool_wasted_bytes", "wasted_bytes", "Bytes of the same blocks that nobody asked for: rounding."),
    ("memplan_pool_pending_bytes", "pending_bytes", "Bytes given back in which somebody still has a tensor."),
    ("memplan_pool_cached_bytes", "cached_bytes", "Bytes that are held, and free."),
    ("memplan_pool_held_bytes", "held_bytes", "All bytes of the pool: in use, wasted, pending and cached."),
    ("memplan_pool_hits", "hits", "Requests served from memory that was held already."),
    ("memplan_pool_misses", "misses", "Requests for which more memory was asked of the system."),
    ("memplan_pool_evictions", "evictions", "Cached blocks and slabs that were given up."),
    (
        "memplan_pool_compactions",
        "compactions",
        "Times that sparse slabs were emptied because free bytes passed the pool's threshold.",
    ),
    ("memplan_pool_leaks", "leaks", "Handles that were dropped without giving back."),
    counters={"hits", "misses", "evictions", "compactions", "leaks"},
)
"""For every pool."""

BUCKET = metrics(
    PoolBucket,
    ("memplan_pool_bucket_blocks", "blocks", "Blocks of about this size that are taken."),
    ("memplan_pool_bucket_in_use_bytes", "in_use_bytes", "Requested bytes of them."),
    ("memplan_pool_bucket_wasted_bytes", "wasted_bytes", "Their other bytes: rounding."),
    (
        "memplan_pool_bucket_hits",
        "hits",
        "Requests for about this size that were served from memory that was held already.",
    ),
    (
        "memplan_pool_bucket_misses",
        "misses",
        "Requests for about this size for which more memory was asked of the system.",
    ),
    counters={"hits", "misses"},
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
