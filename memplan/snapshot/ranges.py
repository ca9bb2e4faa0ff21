"""A set of addresses, kept as disjoint half-open ranges."""

from bisect import bisect_right
from collections.abc import Iterator


class Ranges:
    """Disjoint ranges; touching ones are one."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> bool:
        """Add a range; False, and nothing happens, if it is empty or a part of it is there already."""
        index = bisect_right(self._starts, start)
        before = index > 0 and self._ends[index - 1] >= start
        if start >= end or (before and self._ends[index - 1] > start):
            return False
        if index < len(self._starts) and self._starts[index] < end:
            return False
        after = index < len(self._starts) and self._starts[index] == end
        first, last = index - before, index + after
        start = self._starts[first] if before else start
        end = self._ends[last - 1] if after else end
        self._starts[first:last], self._ends[first:last] = [start], [end]
        return True

    def remove(self, start: int, end: int) -> bool:
        """Take a range away; False, and nothing happens, if it is empty or a part of it is not there."""
        index = bisect_right(self._starts, start) - 1
        if start >= end or index < 0 or self._ends[index] < end:
            return False
        left = [(self._starts[index], start)] if self._starts[index] < start else []
        right = [(end, self._ends[index])] if end < self._ends[index] else []
        self._starts[index : index + 1] = [low for low, _ in left + right]
        self._ends[index : index + 1] = [high for _, high in left + right]
        return True

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The ranges in order."""
        return iter(list(zip(self._starts, self._ends, strict=True)))
