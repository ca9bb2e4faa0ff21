"""A history that never grows beyond a number of items, and keeps every peak."""

from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


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
