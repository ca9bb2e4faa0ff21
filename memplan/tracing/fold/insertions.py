"""Where the words of a deeper model's stream have copies more than those of a shallower one.

shallow   set-up  A  │ forward  B  │ backward  C  │ …
deep      set-up  A A A │ forward  B B B │ backward  C C C │ …      two blocks more: each stretch twice more
"""

from typing import NamedTuple

import numpy as np

from memplan.tracing.fold.stream import Integers


class Insertion(NamedTuple):
    """A stretch that the deeper stream repeats."""

    at: int
    """Where its first additional copy begins in the deeper stream."""
    length: int
    """Tokens of one copy."""


def insertions(shallow: Integers, deep: Integers, copies: int) -> tuple[Insertion, ...] | None:
    """Return the stretches that are inserted so many times; None where the streams differ by anything else.

    Args:
        shallow: Vocabulary of the shallower model.
        deep: Vocabulary of the deeper one.
        copies: How many periods of blocks it has more, at least two: that they are alike shows what a copy is.
    """
    # A last word that no stream has: what is inserted at the end is then in the middle, too.
    shallow, deep = (np.append(words, -1) for words in (shallow, deep))
    inserted: list[Insertion] = []
    here = there = 0
    while here < len(shallow):
        same = _common(shallow[here:], deep[there:])
        here, there = here + same, there + same
        if here == len(shallow):
            break
        length = _length(shallow[here:], deep, there, copies)
        if length is None:
            return None
        inserted.append(Insertion(there, length))
        there += copies * length
    return tuple(inserted) if there == len(deep) else None


def _length(rest: Integers, deep: Integers, there: int, copies: int) -> int | None:
    """The length of a copy after which the streams go on alike, for the longest stretch."""
    most = len(deep) - there - len(rest)
    lengths = np.arange(1, most // copies + 1)
    # First looked at where it costs nothing: at what follows the copies, and where the first two of them begin.
    likely = (deep[there + copies * lengths] == rest[0]) & (deep[there + lengths] == deep[there])
    found = [length for length in lengths[likely].tolist() if _is_repeated(deep, there, length, copies)]
    return max(found, key=lambda length: _common(rest, deep[there + copies * length :]), default=None)


def _is_repeated(words: Integers, at: int, length: int, copies: int) -> bool:
    """Do so many copies of one stretch begin here?"""
    end = at + copies * length
    return np.array_equal(words[at : end - length], words[at + length : end])


def _common(one: Integers, other: Integers) -> int:
    """How many words are the same from the beginning."""
    most = min(len(one), len(other))
    done, part = 0, 64
    while done < most:
        end = min(done + part, most)
        differ = np.flatnonzero(one[done:end] != other[done:end])
        if len(differ):
            return done + int(differ[0])
        done, part = end, 4 * part
    return most
