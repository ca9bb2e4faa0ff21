"""One piece of a pool's memory, and who took it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType

import torch

from memplan.runtime.pools.memory import users
from memplan.runtime.pools.records import Site
from memplan.runtime.pools.slabs import Place
from memplan.units import Bytes

Line = tuple[CodeType, int]
"""Code and line number: what a frame tells without writing text."""


@dataclass(slots=True, eq=False)
class Block:
    """One piece of memory, in one tensor's use or in none."""

    nbytes: int
    """Its size."""
    storage: torch.UntypedStorage
    """Its bytes."""
    idle: int
    """What ``users`` says when nobody uses it."""
    place: Place | None = None
    """Where in which slab; None: it is large, and nobody's piece."""
    requested: int = 0
    """Bytes that its present user asked for."""
    line: Line | None = None
    """Where its present user took it."""
    may_move: bool = False
    """Does its present user look its storage up each time?"""

    @property
    def is_idle(self) -> bool:
        """Has nobody a tensor in it?"""
        return users(self.storage) <= self.idle


class Lines:
    """What was taken, by line. Bounded by the lines of a program, not by its steps."""

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        self._counts: Counter[Line] = Counter()
        self._bytes: Counter[Line] = Counter()
        for block in blocks:
            self.add(block)

    def add(self, block: Block) -> None:
        """Count a block at its line."""
        if block.line:
            self._counts[block.line] += 1
            self._bytes[block.line] += block.requested

    def sites(self) -> tuple[Site, ...]:
        """Most bytes first."""
        return tuple(
            Site(where=where(line), count=self._counts[line], nbytes=Bytes(nbytes))
            for line, nbytes in self._bytes.most_common()
        )


def where(line: Line) -> str:
    """``file:line``."""
    return f"{line[0].co_filename}:{line[1]}"
