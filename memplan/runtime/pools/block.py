"""One piece of a pool's memory, and who took it."""

import mmap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType

import torch

from memplan.runtime.pools.memory import tensor_in, users
from memplan.runtime.pools.records import PoolSite
from memplan.runtime.pools.slabs import SlabPiece
from memplan.units import Bytes

Line = tuple[CodeType, int]
"""Code and line number: what a frame tells without writing text."""


@dataclass(slots=True, eq=False)
class PoolBlock:
    """One piece of memory, in one tensor's use or in none."""

    nbytes: int
    """Its size."""
    storage: torch.UntypedStorage
    """Its bytes; ``moved`` changes them."""
    place: SlabPiece | None = None
    """Where in which slab; None: it is large, and nobody's piece."""
    memory: mmap.mmap | None = None
    """All of a large block's memory; None: a device's, or a piece."""
    requested: int = 0
    """Bytes that its present user asked for."""
    line: Line | None = None
    """Where its present user took it."""
    may_move: bool = False
    """Does its present user look its storage up each time?"""
    _pattern: torch.Tensor | None = None
    """The last tensor that was asked for; nobody else ever has it."""
    _idle: int = 0
    """What ``users`` says when only this block has it, the pattern included."""

    def __post_init__(self) -> None:
        """Count while nobody else has it."""
        self._idle = users(self.storage) + 1

    @property
    def is_idle(self) -> bool:
        """Has nobody a tensor in it?"""
        return users(self.storage) <= self._idle

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A contiguous tensor from the first byte on: a leaf, no view, with a version of its own."""
        pattern = self._pattern
        if pattern is None or pattern.dtype is not dtype or pattern.shape != shape:
            # One that is made in inference mode would be of no use to autograd later.
            with torch.inference_mode(False):
                self._pattern = pattern = tensor_in(self.storage, shape, dtype)
        # A quarter of the time of making one. Unlike ``detach()`` it is no view of the pattern.
        return pattern.data

    def moved(self, storage: torch.UntypedStorage, place: SlabPiece) -> None:
        """Be somewhere else, where the same bytes are."""
        self.storage, self.place, self._pattern = storage, place, None
        self._idle = users(storage) + 1


class Lines:
    """What was taken, by line. Bounded by the lines of a program, not by its steps."""

    def __init__(self, blocks: Iterable[PoolBlock] = ()) -> None:
        self._counts: Counter[Line] = Counter()
        self._bytes: Counter[Line] = Counter()
        for block in blocks:
            self.add(block)

    def add(self, block: PoolBlock) -> None:
        """Count a block at its line."""
        if block.line:
            self._counts[block.line] += 1
            self._bytes[block.line] += block.requested

    def sites(self) -> tuple[PoolSite, ...]:
        """Most bytes first."""
        return tuple(
            PoolSite(where=where(line), count=self._counts[line], nbytes=Bytes(nbytes))
            for line, nbytes in self._bytes.most_common()
        )


def where(line: Line) -> str:
    """``file:line``."""
    return f"{line[0].co_filename}:{line[1]}"
