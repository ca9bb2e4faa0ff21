"""Does a series grow without end? A pure function, and an exact test. Torch-free.

    the latest W values:   |  segment 1  |  segment 2  |  segment 3  |
    each in ten blocks:    . . . . . . . . . . ' ' ' ' ' ' ' ' ' ' ' "    floor = least value of a block

What is alive at the end of a step is a floor, and on it what comes and goes: outputs, evaluations, garbage that waits
for its collector. The least value of a block sees the floor. Growth is claimed where the floors rise in **each** of the
three segments. So a jump, or growth that has ended, cannot look like a leak: at least one segment is without. In such
a segment every order of the floors is equally likely (they are exchangeable), and the number of pairs out of order has
Kendall's distribution, which is exact, knows nothing of the noise's size, and says how many may be so.
"""

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from statistics import median

from memplan.runtime import trend
from memplan.runtime.leaks.records import Growing, Steady, TooShort, Verdict, WarmUp

SEGMENTS, BLOCKS = 3, 10
"""Ten floors in a segment: the chance of perfect order is 1/10!, so that small levels can be met at all."""
FLOORS = SEGMENTS * BLOCKS
PATIENCE = 90
"""Steps. Growth that ends within so many is warm-up; three values to a block hide a spike in every second step."""
FALSE_ALARMS = 1e-3
"""Chance that a judgement calls growth what has none."""
SLOWING = 0.5
"""Growth whose last third is slower than so much of its first comes to an end: a cache that fills, a logarithm."""
_NORMAL_95 = 1.96
ROOM = 4096
"""Values that are kept: judging them takes under a millisecond, and a leak is seen once it has gone on for 1/68 of the
run (thirty bins of at least half as many)."""


def judge(
    series: Sequence[float], *, width: int = 1, patience: int = PATIENCE, false_alarms: float = FALSE_ALARMS
) -> Verdict:
    """Judge a series up to its last value.

    A value is the least of ``width`` steps. Growth must last for ``patience`` steps, at least 30, to be more than
    warm-up. ``false_alarms`` is the chance that a series without growth in some third of what is looked at is called
    growing: of one judgement, whatever number of stretches it looks at.
    """
    if len(series) * width < patience or len(series) < FLOORS:
        return TooShort(needed=max(patience, FLOORS * width))
    windows = _windows(len(series), max(1, -(-patience // (FLOORS * width))))
    level = false_alarms / len(windows)
    for block in windows:  # The longest stretch knows the rate best.
        floors = _floors(series, block)
        p_value = _p_value(floors)
        if p_value <= level and _climbs(floors) and not _slows(floors):
            return _growing(floors, block * width, (len(series) - FLOORS * block) * width, p_value)
    return _at_rest(series, windows[0], width)


def _windows(length: int, shortest: int) -> list[int]:
    """Values to a block: from the whole series down by halves."""
    blocks = [length // FLOORS]
    while blocks[-1] // 2 >= shortest:
        blocks.append(blocks[-1] // 2)
    return blocks


def _floors(series: Sequence[float], block: int) -> list[float]:
    first = len(series) - FLOORS * block
    return [min(series[at : at + block]) for at in range(first, len(series), block)]


def _segments(floors: list[float]) -> list[list[float]]:
    return [floors[at : at + BLOCKS] for at in range(0, FLOORS, BLOCKS)]


def _p_value(floors: list[float]) -> float:
    """Of the segment that speaks least for growth: the chance of no more pairs out of order; ties count as such."""
    return max(ordered_by_chance(_out_of_order(segment)) for segment in _segments(floors))


def _out_of_order(values: list[float]) -> int:
    return sum(later <= value for at, value in enumerate(values) for later in values[at + 1 :])


@cache
def ordered_by_chance(inversions: int) -> float:
    """Chance that ten values in random order have at most so many pairs out of order (Mahonian numbers; Kendall)."""
    counts = [1]
    for size in range(2, BLOCKS + 1):  # A further value can overtake 0 to size - 1 others.
        counts = [sum(counts[max(0, at - size + 1) : at + 1]) for at in range(len(counts) + size - 1)]
    return sum(counts[: inversions + 1]) / math.factorial(BLOCKS)


def _slopes(floors: list[float]) -> list[float]:
    return sorted(trend.slopes(enumerate(floors)))


def _climbs(floors: list[float]) -> bool:
    """Each segment stands on the one before: the teeth of a saw may each fill a segment, and start anew."""
    segments = _segments(floors)
    return all(median(later) > max(segment) for segment, later in pairwise(segments))


def _slows(floors: list[float]) -> bool:
    first, *_, last = (median(_slopes(segment)) for segment in _segments(floors))
    return last < SLOWING * first


def _growing(floors: list[float], steps: int, since: int, p_value: float) -> Growing:
    slopes = _slopes(floors)
    pairs = len(slopes)
    half = _NORMAL_95 * trend.deviation(FLOORS) / 2
    low, high = (slopes[min(pairs - 1, max(0, round(pairs / 2 + sign * half)))] for sign in (-1, 1))
    return Growing(
        rate=median(slopes) / steps, low=low / steps, high=high / steps, since=since, p_value=p_value
    )  # fmt: skip


def _at_rest(series: Sequence[float], block: int, width: int) -> Verdict:
    """A series that rose once by more than its latest floors differ has warmed up."""
    floors = _floors(series, block)
    latest = floors[-BLOCKS:]
    noise, gained = max(latest) - min(latest), min(latest) - min(series[:block])
    if gained <= noise:
        return Steady(noise=noise)
    until = next(at for at, value in enumerate(series) if value >= min(latest))
    return WarmUp(gained=gained, until=(until + 1) * width)


class Floor:
    """The least value of each bin of steps; bins double whenever the room is full. Not thread-safe."""

    def __init__(self, room: int = ROOM) -> None:
        self.width = 1
        """Steps to a bin."""
        self.values: list[float] = []
        """Of full bins, oldest first."""
        self._room = room
        self._open = 0
        self._least = float("inf")

    def add(self, value: float) -> None:
        """Add a step."""
        self._least = min(self._least, value)
        self._open += 1
        if self._open < self.width:
            return
        self.values.append(self._least)
        self._open, self._least = 0, float("inf")
        if len(self.values) == self._room:
            self.values = [min(pair) for pair in zip(self.values[::2], self.values[1::2], strict=True)]
            self.width *= 2
