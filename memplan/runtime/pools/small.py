"""Small blocks: pieces of slabs, and the slabs' memory. Not thread-safe: the pool's lock is around it."""

from collections.abc import Callable, Sequence
from typing import Any

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
