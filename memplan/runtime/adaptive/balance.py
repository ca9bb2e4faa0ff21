"""Batches of different size for ranks that have different room."""

from collections.abc import Sequence
from heapq import heapify, heapreplace

from memplan.errors import MemplanError, UsageError
from memplan.runtime.adaptive.ranks import Ranks
from memplan.units import format_bytes


def balanced(samples: int, headrooms: Sequence[int], sample_bytes: int) -> tuple[int, ...]:
    """Divide a global batch so that the rank with the least room left has as much as possible.

    Args:
        samples: Of all ranks together.
        headrooms: Bytes that each rank has left without a batch.
        sample_bytes: What one sample more takes, the same on every rank.

    Returns:
        Samples of each rank, at least 1.

    Raises:
        UsageError: There are fewer samples than ranks.
        MemplanError: It does not fit, however it is divided.
    """
    if samples < len(headrooms) or sample_bytes < 0:
        raise UsageError(f"{samples} samples of {sample_bytes} bytes cannot be divided among {len(headrooms)} ranks")
    counts = [1] * len(headrooms)
    left = [(sample_bytes - room, rank) for rank, room in enumerate(headrooms)]
    heapify(left)
    for _ in range(samples - len(headrooms)):
        taken, rank = left[0]
        counts[rank] += 1
        heapreplace(left, (taken + sample_bytes, rank))
    over, worst = max(left)
    if over > 0:
        raise MemplanError(f"{samples} samples do not fit: rank {worst} would be {format_bytes(over)} short")
    return tuple(counts)


def balanced_batch(samples: int, headroom: int, sample_bytes: int, ranks: Ranks) -> int:
    """Return this rank's part of a global batch by the headroom that every rank has measured.

    DistributedDataParallel averages over ranks, not samples: multiply the loss by ``part * ranks.count / samples``.

    Args:
        samples: Of all ranks together.
        headroom: Bytes that this rank has left without a batch.
        sample_bytes: What one sample more takes on this rank; the largest of any rank counts.
        ranks: All of them call this together.
    """
    rooms, sizes = ranks.each(headroom), ranks.each(sample_bytes)
    return balanced(samples, rooms, max(sizes))[ranks.position]
