"""A stream at any depth, from streams at three: what is inserted is repeated, and integers follow straight lines.

An integer of a token that stands once is a line in the depth. One of a token in a repeated stretch is a line in the
depth and in the copy: ``base + copy * by_copy + depth * by_depth``. Numbers of blocks, ids of storages and FLOPs of
ops on lists are all of this kind where blocks are alike; where they are not, the third stream shows it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from memplan.tracing.fold.cuts import with_straight_lines
from memplan.tracing.fold.depths import DEPTHS, FIRST, SECOND, THIRD
from memplan.tracing.fold.insertions import insertions
from memplan.tracing.fold.stream import Integers, TokenStream, same, widened


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoldedStretch:
    """Tokens that stand once, or once for every further period of blocks."""

    words: Integers
    """Of one copy."""
    is_repeated: bool
    """Does it stand once for every period?"""
    base: Integers
    """Integers of the first copy at depth 0."""
    by_copy: Integers
    """What each copy adds."""
    by_depth: Integers
    """What each period of depth adds."""

    def at(self, depth: int) -> tuple[Integers, Integers]:
        """Vocabulary and integers of all copies at a depth."""
        copies = np.arange(depth if self.is_repeated else 1)[:, None, None]
        integers = self.base + copies * self.by_copy + depth * self.by_depth
        return np.tile(self.words, len(copies)), integers.reshape(-1, self.base.shape[1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Folding:
    """A stream at any depth."""

    stretches: tuple[FoldedStretch, ...]
    """In order."""

    def at(self, depth: int) -> TokenStream:
        """Return the stream at a depth, in periods of blocks above the first."""
        words, integers = zip(*(stretch.at(depth) for stretch in self.stretches), strict=True)
        return TokenStream(words=np.concatenate(words), integers=np.concatenate(integers))


def fold(streams: Sequence[TokenStream]) -> Folding | None:
    """Return what three streams have in common; None where it does not give each of them again.

    Args:
        streams: At the depths of ``DEPTHS``.
    """
    width = max(stream.integers.shape[1] for stream in streams)
    first, second, third = (widened(stream, width) for stream in streams)
    inserted = insertions(first.words, second.words, SECOND)
    if inserted is None or len(third) - len(second) != (THIRD - SECOND) * sum(length for _, length in inserted):
        return None
    inserted = with_straight_lines(inserted, (first, second, third))
    if inserted is None:
        return None
    cuts = _cuts(inserted, len(second))
    tables = [_tables(stream, cuts, depth) for stream, depth in zip((first, second, third), DEPTHS, strict=True)]
    if any(table is None for table in tables):
        return None
    words = [second.words[start : start + length] for start, length, _ in cuts]
    stretches = (
        _stretch(each, [table[index] for table in tables if table], is_repeated=cuts[index][2])
        for index, each in enumerate(words)
    )
    folding = Folding(stretches=tuple(stretches))
    given = zip((first, second, third), DEPTHS, strict=True)
    return folding if all(same(folding.at(depth), stream) for stream, depth in given) else None


def _cuts(inserted: Sequence[tuple[int, int]], end: int) -> list[tuple[int, int, bool]]:
    """Start and length in the second stream of what stands once and of what is repeated, in turn."""
    cuts: list[tuple[int, int, bool]] = []
    done = 0
    for at, length in inserted:
        cuts += [(done, at - done, False), (at, length, True)]
        done = at + SECOND * length
    return [*cuts, (done, end - done, False)]


def _tables(stream: TokenStream, cuts: Sequence[tuple[int, int, bool]], depth: int) -> list[Integers] | None:
    """The integers of every stretch, copy by copy; None where the stream has another length."""
    copies = [depth if is_repeated else 1 for _, _, is_repeated in cuts]
    ends = np.cumsum([0, *(count * length for count, (_, length, _) in zip(copies, cuts, strict=True))])
    if ends[-1] != len(stream):
        return None
    spans = zip(pairwise(ends.tolist()), copies, cuts, strict=True)
    width = stream.integers.shape[1]
    return [stream.integers[start:end].reshape(count, length, width) for (start, end), count, (_, length, _) in spans]


def _stretch(words: Integers, seen: Sequence[Integers], *, is_repeated: bool) -> FoldedStretch:
    """The lines through the first copies; that all others lie on them is checked on the whole."""
    first, second, third = seen
    if is_repeated:
        by_depth = (third[0] - second[0]) // (THIRD - SECOND)
        by_copy = third[1] - third[0]
    else:
        by_depth = (second[0] - first[0]) // (SECOND - FIRST)
        by_copy = np.zeros_like(by_depth)
    base = second[0] - SECOND * by_depth
    return FoldedStretch(words=words, is_repeated=is_repeated, base=base, by_copy=by_copy, by_depth=by_depth)
