"""What is kept of a check for the live page, in a history that keeps every peak and never grows beyond a number."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from memplan.runtime.meters.records import DeviceReading
from memplan.runtime.monitor.records import Check, Health

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePoint:
    """One device over a stretch of checks: the most of each figure."""

    used: int
    """By all processes."""
    reserved: int | None
    """In segments."""
    allocated: int | None
    """In live blocks."""
    peak: int | None
    """Most that ever was in live blocks."""
    demand: int
    """What cannot be had otherwise."""
    fragmentation: float | None
    """Share of reserved bytes that is stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoint:
    """A stretch of checks, at first one."""

    seconds: float
    """When it ended, since the epoch."""
    step: int | None
    """The last step."""
    level: int
    """The worst."""
    resident: int
    """Most host memory of this process."""
    host: int
    """Most host memory that could not be taken."""
    devices: Mapping[str, DevicePoint]
    """Device → its figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Of the heatmap: bytes alive by size of block, the most over a stretch of checks."""

    seconds: float
    """When it ended."""
    sizes: Mapping[str, tuple[int, ...]]
    """Device → bytes; the i-th are in blocks of less than 2**i bytes and not less than half of that."""


def key(read: DeviceReading, health: Health) -> str:
    """What tells this device from every other one of the job."""
    return f"{'' if health.rank is None else health.rank}/{read.device}/{read.uuid}"


def point(check: Check) -> SeriesPoint:
    """A check as a point."""
    pairs = zip(check.reading.devices, check.devices, strict=True)
    return SeriesPoint(
        seconds=check.reading.seconds,
        step=check.step,
        level=check.level,
        resident=check.reading.host.resident,
        host=check.reading.host.total - check.reading.host.available,
        devices={
            key(read, health): DevicePoint(
                used=read.used,
                reserved=read.reserved,
                allocated=read.allocated,
                peak=read.peak_allocated,
                demand=health.demand,
                fragmentation=health.fragmentation,
            )
            for read, health in pairs
        },
    )


def column(check: Check) -> Column:
    """A check as a column."""
    pairs = zip(check.reading.devices, check.devices, strict=True)
    return Column(
        seconds=check.reading.seconds, sizes={key(read, health): read.sizes for read, health in pairs if read.sizes}
    )


def merge_points(one: SeriesPoint, other: SeriesPoint) -> SeriesPoint:
    """Both stretches as one; ``other`` is later."""
    return SeriesPoint(
        seconds=other.seconds,
        step=one.step if other.step is None else other.step,
        level=max(one.level, other.level),
        resident=max(one.resident, other.resident),
        host=max(one.host, other.host),
        devices=_both(one.devices, other.devices, _most_of_device),
    )


def merge_columns(one: Column, other: Column) -> Column:
    """Both stretches as one; ``other`` is later."""
    return Column(seconds=other.seconds, sizes=_both(one.sizes, other.sizes, _most_of_sizes))


def _most_of_device(one: DevicePoint, other: DevicePoint) -> DevicePoint:
    return DevicePoint(
        used=max(one.used, other.used),
        reserved=_most(one.reserved, other.reserved),
        allocated=_most(one.allocated, other.allocated),
        peak=_most(one.peak, other.peak),
        demand=max(one.demand, other.demand),
        fragmentation=_most(one.fragmentation, other.fragmentation),
    )


def _most_of_sizes(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(max(pair) for pair in zip(one, other, strict=True))


def _both(one: Mapping[str, Any], other: Mapping[str, Any], merge: Any) -> dict[str, Any]:
    """Items of both; those that both have are merged."""
    return {**one, **other, **{name: merge(one[name], other[name]) for name in one.keys() & other.keys()}}


def _most(one: Any, other: Any) -> Any:
    """The larger; what is known, where one is not."""
    return max((each for each in (one, other) if each is not None), default=None)


class Thinned(Generic[Item]):
    """Items in order; when there are too many, neighbours become one, so that each stands for twice as many.

    Not thread-safe.

    ``most`` is even. ``merge`` makes one item of two neighbours, the earlier first; of numbers the larger, or a peak
    would be lost.
    """

    def __init__(self, most: int, merge: Callable[[Item, Item], Item]) -> None:
        self.items: list[Item] = []
        """What is kept, oldest first."""
        self.each = 1
        """How many of those added each item stands for; the last may stand for fewer."""
        self.generation = 0
        """How often all items changed: who knows the items of an earlier generation has to read them anew."""
        self._most = most
        self._merge = merge
        self._in_last = 0

    def add(self, item: Item) -> None:
        """Append an item, or make it part of the last one."""
        if self.items and self._in_last < self.each:
            self.items[-1] = self._merge(self.items[-1], item)
            self._in_last += 1
            return
        if len(self.items) >= self._most:
            pairs = zip(self.items[::2], self.items[1::2], strict=True)
            self.items = [self._merge(*pair) for pair in pairs]
            self.each *= 2
            self.generation += 1
        self.items.append(item)
        self._in_last = 1

    def first_new(self, generation: int, known: int) -> int:
        """The first item that is new to whoever read ``known`` items of a generation; the last may have changed."""
        return min(max(0, known - 1), len(self.items)) if generation == self.generation else 0
