"""A check of any allocator."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Protocol


class Extent(Protocol):
    """Something that lies somewhere."""

    @property
    def address(self) -> int: ...

    @property
    def size(self) -> int: ...


def no_overlap(blocks: Iterable[Extent]) -> bool:
    """Compare all pairs of neighbours by address, the plain way."""
    extents = sorted((block.address, block.address + block.size) for block in blocks if block.size)
    return all(end <= start for (_, end), (start, _) in pairwise(extents))
