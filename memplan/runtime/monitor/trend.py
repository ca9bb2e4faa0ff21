"""Growth that is neither warm-up nor noise: the median of slopes (Theil, Sen), trusted where ranks agree (Kendall).

Both look at the order of values alone, so that one outlier, a single jump or a validation pass is no trend.
Source: P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau", JASA 63 (1968).
"""

from collections.abc import Sequence
from itertools import combinations
from statistics import median
from typing import NamedTuple

from memplan.runtime.monitor.records import Check, Trend
from memplan.units import MIB

MOST_POINTS = 24
"""Evenly chosen of the window; 300 pairs take some 50 µs."""
_FEWEST_POINTS = 12
"""With fewer, not even a strict rise is as rare as ``_SURE`` asks for."""
_SURE = 4.0
"""Standard deviations of Kendall's S: by chance 1 in 30,000 windows, for values that are independent."""
_NOISE = MIB
"""Growth over the window that rounding and caches of libraries explain: the allocator's step for small pools."""


class Point(NamedTuple):
    """When a check was."""

    step: int | None
    seconds: float


def looked_at(history: Sequence[Check], warm_up: int, *, stepped: bool) -> list[Check]:
    """The earlier checks that a trend rests on: at even distances, the first and the last that count among them.

    Args:
        history: All that there are, oldest first.
        warm_up: Steps, or checks where steps are not known, that do not count.
        stepped: Are steps known by now? What was before the first of them is set-up.
    """
    done = (check.step if stepped else check.number for check in history)
    first = next((index for index, count in enumerate(done) if count is not None and count >= warm_up), len(history))
    settled = len(history) - first
    count = min(settled, MOST_POINTS)
    if count < 2:
        return []
    return [history[first + index * (settled - 1) // (count - 1)] for index in range(count)]


def trend_of(chosen: Sequence[tuple[Point, int]], headroom: int) -> Trend | None:
    """The trend of bytes over checks.

    Args:
        chosen: When, and how many bytes; oldest first, a few dozen at most.
        headroom: Bytes that are left.

    Returns:
        None where there are too few points.
    """
    if len(chosen) < _FEWEST_POINTS:
        return None
    times, by = _times([point for point, _ in chosen])
    pairs = list(combinations(zip(times, (size for _, size in chosen), strict=True), 2))
    slopes = [(later - earlier) / (end - start) for (start, earlier), (end, later) in pairs if end > start]
    if not slopes:
        return None
    slope = median(slopes)
    agreement = sum(each > 0 for each in slopes) - sum(each < 0 for each in slopes)
    count = len(chosen)
    deviation = (count * (count - 1) * (2 * count + 5) / 18) ** 0.5
    growing = agreement >= _SURE * deviation and slope * (times[-1] - times[0]) >= _NOISE
    until_full = max(0, headroom) / slope if growing else None
    return Trend(per_step=slope, by=by, checks=count, growing=growing, until_full=until_full)


def _times(points: Sequence[Point]) -> tuple[list[float], str]:
    """Steps, where every point has one and they rise; else seconds."""
    steps = [float(point.step) for point in points if point.step is not None]
    if len(steps) == len(points) and steps[-1] > steps[0]:
        return steps, "step"
    return [point.seconds for point in points], "second"
