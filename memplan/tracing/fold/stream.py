"""A row of tokens: each a word, which all copies of a block share, and integers, which differ from copy to copy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Integers = np.ndarray[Any, np.dtype[np.int64]]
"""A table of integers, or a column of one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenStream:
    """Tokens in order."""

    words: Integers
    """The word of each (``Vocabulary``)."""
    integers: Integers
    """The integers of each in a row, filled up with zeros."""

    def __len__(self) -> int:
        return len(self.words)


def stream_of(words: Sequence[int], integers: Sequence[Sequence[int]]) -> TokenStream:
    """Return tokens as a stream.

    Args:
        words: The word of each.
        integers: The integers of each, as many as its word has.

    Raises:
        OverflowError: One of them has more than 63 bits.
    """
    width = max(map(len, integers), default=1)
    table = np.zeros((len(words), width), np.int64)
    counts = np.fromiter(map(len, integers), np.int64, len(integers))
    flat = np.fromiter((each for row in integers for each in row), np.int64, int(counts.sum()))
    table[np.arange(width) < counts[:, None]] = flat
    return TokenStream(words=np.array(words, np.int64), integers=table)


def widened(stream: TokenStream, width: int) -> TokenStream:
    """Return the stream with so many integers a token."""
    missing = width - stream.integers.shape[1]
    return TokenStream(words=stream.words, integers=np.pad(stream.integers, ((0, 0), (0, missing))))


def same(one: TokenStream, other: TokenStream) -> bool:
    """Are two streams equal in every word and integer?"""
    return np.array_equal(one.words, other.words) and np.array_equal(one.integers, other.integers)
