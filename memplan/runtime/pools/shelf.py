"""Large blocks that wait for the next request, and which of them goes first. Torch-free."""

from bisect import bisect_left, insort
from collections import Counter, deque
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """What has a size."""

    nbytes: int
    """Bytes."""


B = TypeVar("B", bound=Sized)


class Shelf(Generic[B]):
    """Cached blocks by size. Not thread-safe: the pool's lock is around it.

    Eviction is *least frequently used with dynamic ageing* (LFUDA, as in the Squid cache): a block's key is the uses of
    its size plus the age at which it came, the least key goes, and its key becomes the age. So a size that was popular
    once does not stay for ever, and a size that is seen once does not drive out one that is used at every step.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        """Bytes on the shelf."""
        self._by_size: dict[int, deque[tuple[int, B]]] = {}
        """Size → (key, block), the latest at the right."""
        self._sizes: list[int] = []
        """Sizes that are there, increasing."""
        self._uses: Counter[int] = Counter()
        self._age = 0

    def __len__(self) -> int:
        return sum(map(len, self._by_size.values()))

    def put(self, block: B) -> None:
        """Keep a block."""
        size = block.nbytes
        row = self._by_size.get(size)
        if row is None:
            row = self._by_size[size] = deque()
            insort(self._sizes, size)
        row.append((self._age + self._uses[size], block))
        self.nbytes += size

    def used(self, size: int) -> None:
        """Count a use of a size, from the shelf or not."""
        self._uses[size] += 1

    def fit(self, nbytes: int, most: int) -> B | None:
        """Take the smallest block of at least ``nbytes`` and at most ``most`` bytes, the one that was last used."""
        index = bisect_left(self._sizes, nbytes)
        if index == len(self._sizes) or self._sizes[index] > most:
            return None
        size = self._sizes[index]
        row = self._by_size[size]
        _, block = row.pop()
        self._took(size, row)
        return block

    def evict(self) -> B | None:
        """Take the block with the least key; None where the shelf is empty."""
        if not self._sizes:
            return None
        size = min(self._sizes, key=lambda each: self._by_size[each][0][0])
        row = self._by_size[size]
        self._age, block = row.popleft()
        self._took(size, row)
        return block

    def _took(self, size: int, row: "deque[tuple[int, B]]") -> None:
        self.nbytes -= size
        if not row:
            del self._by_size[size]
            del self._sizes[bisect_left(self._sizes, size)]
