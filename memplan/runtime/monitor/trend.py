"""Growth that is neither warm-up nor noise: the median of slopes (Theil, Sen), trusted where ranks agree (Kendall).

Both look at the order of values alone, so that one outlier, a single jump or a validation pass is no trend. Growth that
began late would drown in what was flat before it: the last quarter of the window is judged beside the whole.
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from memplan.runtime.monitor.records import Check, Trend
from memplan.runtime.trend import deviation, slopes
from memplan.units import MIB

MOST_POINTS = 24
"""Evenly chosen of the window; 300 pairs take some 50 µs."""
_FEWEST_POINTS = 12
"""With fewer, not even a strict rise is as rare as ``_SURE`` asks for."""
_SURE = 4.0
"""Standard deviations of Kendall's S: by chance 1 in 30,000 windows, for values that are independent."""
_SURE_OF_LATE = 4.5
"""The same for the last quarter, of which a run has four times as many: by chance 1 in 290,000, not a ninth of that
for the whole, so that looking twice raises false alarms by half at most."""
_EVEN_SHARE = 0.2
"""Of the rise from the first quarter of the points to the last, what each next one must add: an even rise adds a third
each time, a jump nothing at least once. Our own choice between these."""
_NOISE = MIB
"""Growth over the window that rounding and caches of libraries explain: the allocator's step for small pools."""


class Point(NamedTuple):
    """When a check was."""

    step: int | None
    seconds: float


def windows(history: Sequence[Check], warm_up: int, *, stepped: bool) -> tuple[Sequence[Check], ...]:
    """The earlier checks that trends rest on: at even distances, the first and the last that count among them.

    Args:
        history: All that there are, oldest first.
        warm_up: Steps, or checks where steps are not known, that do not count.
        stepped: Are steps known by now? What was before the first of them is set-up.

    Returns:
        Those of the whole history, and, where that is long enough, those of its last quarter.
    """
    done = (check.step if stepped else check.number for check in history)
    first = next((index for index, count in enumerate(done) if count is not None and count >= warm_up), len(history))
    settled = len(history) - first
    late = max(MOST_POINTS, settled // 4)
    return tuple(_even(history, count) for count in (settled, *([late] if settled >= 2 * late else [])))


def _even(history: Sequence[Check], last: int) -> list[Check]:
    """Some of so many last ones, at even distances."""
    first, count = len(history) - last, min(last, MOST_POINTS)
    return [history[first + index * (last - 1) // (count - 1)] for index in range(count)] if count > 1 else []


def growth(chosen: Sequence[Sequence[tuple[Point, int]]], headroom: int) -> Trend | None:
    """The trend of the whole window; that of its last quarter, where only this one grows.

    ``chosen`` is of both windows (``windows``) what ``trend_of`` takes; the headroom is bytes that are left.
    """
    whole = trend_of(chosen[0], headroom)
    if len(chosen) == 1 or whole is None or whole.growing:
        return whole
    # What does not rise evenly cannot grow, and is told at a tenth of the cost.
    if not _steady([size for _, size in chosen[1]]):
        return whole
    late = trend_of(chosen[1], headroom, sure=_SURE_OF_LATE)
    return late if late is not None and late.growing else whole


def trend_of(chosen: Sequence[tuple[Point, int]], headroom: int, *, sure: float = _SURE) -> Trend | None:
    """The trend of bytes over some dozen checks, oldest first; None where there are too few points.

    ``sure`` are standard deviations of Kendall's S from which checks agree.
    """
    if len(chosen) < _FEWEST_POINTS:
        return None
    times, by = _times([point for point, _ in chosen])
    found = slopes(zip(times, (size for _, size in chosen), strict=True))
    if not found:
        return None
    slope = median(found)
    agreement = sum(each > 0 for each in found) - sum(each < 0 for each in found)
    enough = slope * (times[-1] - times[0]) >= _NOISE
    growing = agreement >= sure * deviation(len(chosen)) and enough and _steady([size for _, size in chosen])
    until_full = max(0, headroom) / slope if growing else None
    return Trend(per_step=slope, by=by, checks=len(chosen), growing=growing, until_full=until_full)


def _steady(sizes: Sequence[int]) -> bool:
    """Does every quarter lie above the one before? Under noise the ranks of a jump are like those of a trend."""
    ends = [index * len(sizes) // 4 for index in range(5)]
    levels = [median(sizes[start:end]) for start, end in pairwise(ends)]
    least = _EVEN_SHARE * (levels[-1] - levels[0])
    return least > 0 and all(later - earlier >= least for earlier, later in pairwise(levels))


def _times(points: Sequence[Point]) -> tuple[list[float], str]:
    """Steps, where every point has one and they rise; else seconds."""
    steps = [float(point.step) for point in points if point.step is not None]
    if len(steps) == len(points) and steps[-1] > steps[0]:
        return steps, "step"
    return [point.seconds for point in points], "second"
