"""Small blocks, pieces of slabs, and large ones that wait for the next request. The pool's lock is around both."""

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from memplan.runtime.pools.block import PoolBlock
from memplan.runtime.pools.memory import Memory
from memplan.runtime.pools.slabs import SlabPiece, Slabs


class SmallBlocks:
    """Blocks that share slabs.

    ``hold`` is told the bytes of each slab that comes (positive) or goes (negative).
    """

    def __init__(self, memory: Memory, hold: Callable[[int], None]) -> None:
        self._memory, self._hold = memory, hold
        self._slabs = Slabs()
        self._buffers: dict[int, Any] = {}
        self._empty: set[int] = set()

    @property
    def empty(self) -> int:
        """Slabs of which nothing is taken."""
        return len(self._empty)

    @property
    def free_bytes(self) -> int:
        """Bytes of all slabs that no block lies in."""
        return len(self._slabs.used) * self._slabs.nbytes - sum(self._slabs.used.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all slabs."""
        return len(self._slabs.used) * self._slabs.nbytes

    def take(self, nbytes: int) -> PoolBlock | None:
        """A piece of at least so many bytes; None where no slab has it."""
        place = self._slabs.take(max(nbytes, 1))
        if place is None:
            return None
        self._empty.discard(place.slab)
        return PoolBlock(nbytes=place.nbytes, storage=self._piece(place), place=place)

    def add(self, buffer: Any) -> None:
        """One slab more."""
        slab = self._slabs.add()
        self._buffers[slab] = buffer
        self._empty.add(slab)
        self._hold(self._slabs.nbytes)

    def give_back(self, place: SlabPiece) -> None:
        """Free a piece."""
        if self._slabs.give_back(place):
            self._empty.add(place.slab)

    def drop_empty(self, keep: int) -> int:
        """Give empty slabs back until so many are left; returns how many."""
        number = max(0, len(self._empty) - keep)
        for _ in range(number):
            slab = self._empty.pop()
            self._slabs.remove(slab)
            del self._buffers[slab]
            self._hold(-self._slabs.nbytes)
        return number

    def compact(self, movable: Sequence[PoolBlock]) -> None:
        """Empty the slabs of which the least is taken into the fuller ones, where everything in them may move.

        Nobody has a tensor in what is movable, and its owner looks its storage up each time.
        """
        for slab in sorted(self._slabs.used, key=self._slabs.used.__getitem__):
            within = [block for block in movable if block.place is not None and block.place.slab == slab]
            if within and sum(block.nbytes for block in within) == self._slabs.used[slab]:
                self._move(within, frozenset(self._slabs.used) - self._empty - {slab})

    def _move(self, blocks: Sequence[PoolBlock], into: frozenset[int]) -> None:
        """All of the blocks or none."""
        found: list[tuple[PoolBlock, SlabPiece]] = []
        for block in sorted(blocks, key=lambda each: -each.nbytes):
            place = self._slabs.take(block.nbytes, into)
            if place is None:
                for _, taken in found:
                    self._slabs.give_back(taken)
                return
            found.append((block, place))
        for block, place in found:
            old = block.place
            storage = self._piece(place)
            storage.copy_(block.storage)
            block.moved(storage, place)
            if old is not None:
                self.give_back(old)

    def _piece(self, place: SlabPiece) -> Any:
        return self._memory.piece(self._buffers[place.slab], place.offset, place.nbytes)


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
