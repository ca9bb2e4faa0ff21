"""Where small blocks lie: slabs that requests of all sizes share, best fit, neighbours joined. Numbers only.

Torch-free. As the small pool of CUDA's caching allocator (c10/cuda/CUDACachingAllocator.cpp: ``kSmallSize``,
``kSmallBuffer``).
"""

from bisect import bisect_left, insort
from dataclasses import dataclass

from memplan.units import MIB

SLAB = 2 * MIB
"""Bytes of a slab (``kSmallBuffer``)."""
ALIGNMENT = 64
"""Of CPU tensors, in bytes (c10/core/alignment.h: ``gAlignment``)."""


@dataclass(frozen=True, slots=True)
class SlabPiece:
    """A piece of a slab."""

    slab: int
    """Number of the slab."""
    offset: int
    """Its first byte."""
    nbytes: int
    """Its length, a multiple of ``ALIGNMENT``."""


class Slabs:
    """Free and taken pieces of any number of slabs. Not thread-safe: the pool's lock is around it."""

    nbytes = SLAB
    """Of each."""

    def __init__(self) -> None:
        self.used: dict[int, int] = {}
        """Slab → bytes taken of it."""
        self._free: list[tuple[int, int, int]] = []
        """(bytes, slab, offset) of the free pieces, sorted."""
        self._starts: dict[tuple[int, int], int] = {}
        """(slab, offset) of a free piece → its bytes."""
        self._ends: dict[tuple[int, int], int] = {}
        """(slab, first byte after a free piece) → its bytes."""
        self._next = 0

    def add(self) -> int:
        """Begin a slab; returns its number."""
        slab, self._next = self._next, self._next + 1
        self.used[slab] = 0
        self._insert(slab, 0, SLAB)
        return slab

    def remove(self, slab: int) -> None:
        """Forget an empty slab."""
        del self.used[slab]
        self._cut(slab, 0, SLAB)

    def take(self, nbytes: int, into: frozenset[int] | None = None) -> SlabPiece | None:
        """The smallest free piece, of these slabs or of all, that is large enough, split; None where there is none."""
        needed = -(-nbytes // ALIGNMENT) * ALIGNMENT
        for found in range(bisect_left(self._free, (needed, -1, -1)), len(self._free)):
            size, slab, offset = self._free[found]
            if into is None or slab in into:
                self._cut(slab, offset, size)
                if size > needed:
                    self._insert(slab, offset + needed, size - needed)
                self.used[slab] += needed
                return SlabPiece(slab, offset, needed)
        return None

    def give_back(self, place: SlabPiece) -> bool:
        """Join a piece with its free neighbours; is its slab empty now?"""
        slab, start, size = place.slab, place.offset, place.nbytes
        self.used[slab] -= size
        before = self._ends.get((slab, start))
        if before is not None:
            self._cut(slab, start - before, before)
            start, size = start - before, size + before
        after = self._starts.get((slab, start + size))
        if after is not None:
            self._cut(slab, start + size, after)
            size += after
        self._insert(slab, start, size)
        return size == SLAB

    def _insert(self, slab: int, offset: int, size: int) -> None:
        insort(self._free, (size, slab, offset))
        self._starts[slab, offset] = size
        self._ends[slab, offset + size] = size

    def _cut(self, slab: int, offset: int, size: int) -> None:
        del self._free[bisect_left(self._free, (size, slab, offset))]
        del self._starts[slab, offset]
        del self._ends[slab, offset + size]
