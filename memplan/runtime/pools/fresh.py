"""Blocks that came back lately, for the next request of exactly as many bytes. Torch-free."""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

MOST = 1024
"""Blocks that wait unsorted. Sorting them all takes milliseconds."""


class Requested(Protocol):
    """What was asked for by its size."""

    requested: int
    """Bytes."""


B = TypeVar("B", bound=Requested)


class Fresh(Generic[B]):
    """Stacks by size, as glibc's tcache: the latest goes first, and nothing is joined. Not thread-safe.

    A loop asks for the same sizes again and again. What waits here is sorted only when a size is not among it.
    """

    def __init__(self) -> None:
        self._rows: dict[int, list[B]] = {}
        self._number = 0

    def take(self, requested: int) -> B | None:
        """The block that came back last of those with as many bytes."""
        row = self._rows.get(requested)
        if not row:
            return None
        self._number -= 1
        return row.pop()

    def put(self, block: B) -> bool:
        """Keep a block; is there room for more?"""
        row = self._rows.get(block.requested)
        if row is None:
            self._rows[block.requested] = [block]
        else:
            row.append(block)
        self._number += 1
        return self._number < MOST

    def clear(self, most: int | None = None) -> Iterator[B]:
        """Take all of them, or those of at most so many bytes."""
        for size in [each for each in self._rows if most is None or each <= most]:
            row = self._rows.pop(size)
            self._number -= len(row)
            yield from row
