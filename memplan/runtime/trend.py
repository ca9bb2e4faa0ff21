"""What every test for a trend asks: how steep, and by how much the order of values may differ by chance. Torch-free.

Two tests use it. The monitor (``memplan.runtime.monitor.trend``) asks at what pace a device fills: a dozen checks at
any distance are enough, and a rise that slows down counts. Leak detection (``memplan.runtime.leaks.trend``) asks
whether the floor rises without end, with an exact chance of error: it wants every step, waits for 90 of them, and takes
neither the teeth of a saw nor a cache that fills for a leak.
Source: P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau", JASA 63 (1968).
"""

from collections.abc import Iterable
from itertools import combinations
from math import sqrt


def slopes(points: Iterable[tuple[float, float]]) -> list[float]:
    """Return the slopes between all pairs of points at different times; their median is the estimate of Theil and Sen.

    The points are (time, value), in the order of time.
    """
    return [
        (later - earlier) / (end - start) for (start, earlier), (end, later) in combinations(points, 2) if end > start
    ]


def deviation(count: int) -> float:
    """Return the standard deviation of Kendall's S, rising pairs less falling ones, of values in random order."""
    return sqrt(count * (count - 1) * (2 * count + 5) / 18)
