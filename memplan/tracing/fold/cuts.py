"""Where a repeated stretch begins: wherever its words repeat, of which the integers decide.

    words      p a b a b a b a b s        with two copies more than  p a b a b s : they may begin at either a,
    integers   . 9 . 1 . 2 . 3 . .        or between; only from the second one are the integers on a line.

The first and the last blocks of a model look like the others and refer to something else: to the embedding, the head.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from memplan.tracing.fold.depths import SECOND, THIRD
from memplan.tracing.fold.insertions import Insertion
from memplan.tracing.fold.stream import Integers, TokenStream

_MORE = THIRD - SECOND
"""Copies that the third stream has more than the second."""


def with_straight_lines(inserted: Sequence[Insertion], streams: Sequence[TokenStream]) -> tuple[Insertion, ...] | None:
    """Return the same stretches beginning where integers are on lines; None where one of them begins nowhere so.

    Args:
        inserted: Stretches of the second stream, each beginning as late as may be.
        streams: At the depths of ``DEPTHS``.
    """
    found: list[Insertion] = []
    for each in inserted:
        straight = next(
            filter(None, (_straight(parts, found, streams) for parts in _parts(each, found, streams))), None
        )
        if straight is None:
            return None
        found += straight
    return tuple(found)


def _straight(
    parts: Sequence[Insertion], found: Sequence[Insertion], streams: Sequence[TokenStream]
) -> list[Insertion] | None:
    """The next stretches, each where integers are on lines; None where one of them begins nowhere so."""
    made: list[Insertion] = []
    for at, length in parts:
        before = [*found, *made]
        room = _room(streams[1].words, _end(before), at, length)
        earlier = _earlier(streams, Insertion(at, length), room, sum(each.length for each in before))
        if earlier is None:
            return None
        made.append(Insertion(at - earlier, length))
    return made


def _parts(
    inserted: Insertion, found: Sequence[Insertion], streams: Sequence[TokenStream]
) -> Iterator[tuple[Insertion, ...]]:
    """A stretch as it is; then as equal lists, one behind the other, of which each grows by its own end.

    An op on ``gradients, gradients`` of equal blocks reads one long row of equal words.
    """
    yield (inserted,)
    words, (at, length) = streams[1].words, inserted
    start, end = at - _room(words, _end(found), at, length), at + SECOND * length
    for count in range(2, length + 1):
        part, rest = divmod(length, count)
        whole, uneven = divmod(end - start, count)
        if rest or uneven or not np.array_equal(words[start : end - part], words[start + part : end]):
            continue
        yield tuple(Insertion(start + (index + 1) * whole - SECOND * part, part) for index in range(count))


def _end(found: Sequence[Insertion]) -> int:
    """Where the last stretch ends in the second stream."""
    return found[-1].at + SECOND * found[-1].length if found else 0


def _room(words: Integers, end: int, at: int, length: int) -> int:
    """How much earlier the copies may begin, the words being what they are."""
    differ = np.flatnonzero(words[end:at] != words[end + length : at + length])
    return at - end - (int(differ[-1]) + 1 if len(differ) else 0)


def _earlier(streams: Sequence[TokenStream], inserted: Insertion, room: int, before: int) -> int | None:
    """How much earlier the copies begin where integers are on lines: those before, in and behind them.

    Args:
        streams: At the depths of ``DEPTHS``.
        inserted: The stretch.
        room: How much earlier it may begin at most.
        before: Lengths of all stretches before it, together.
    """
    first, second, third = (stream.integers for stream in streams)
    at, length = inserted
    low, behind = at - room, SECOND * length
    left = _are_apart(first[low - SECOND * before :][:room], second[low:at], third[low + _MORE * before :][:room])
    right = _are_apart(
        first[low - SECOND * before :][:room],
        second[low + behind :][:room],
        third[low + _MORE * before + THIRD * length :][:room],
    )
    inside = _are_bent(
        second[low : at + behind], third[low + _MORE * before : at + _MORE * before + THIRD * length], length
    )
    # From how many tokens on each side of a beginning something is off its line.
    begins = np.arange(room + 1)
    off_left = np.concatenate([[0], np.cumsum(left)])
    off_right = np.concatenate([[0], np.cumsum(right)])
    off_inside = np.concatenate([[0], np.cumsum(inside)])
    off = off_left[begins] + off_right[-1] - off_right[begins] + off_inside[begins + length] - off_inside[begins]
    straight = np.flatnonzero(off == 0)
    return room - int(straight[-1]) if len(straight) else None


def _are_apart(first: Integers, second: Integers, third: Integers) -> Integers:
    """Which tokens that stand once are off the line through three depths."""
    off: Integers = (_MORE * (second - first) != SECOND * (third - second)).any(axis=1)
    return off


def _are_bent(second: Integers, third: Integers, length: int) -> Integers:
    """Which tokens of the first copy, wherever that begins, are off the line through all copies."""
    count = len(second) - length
    by_copy = third[length : length + count] - third[:count]
    off: Integers = (second[length:] - second[:count] != by_copy).any(axis=1)
    for copy in range(2, THIRD):
        off |= (third[copy * length :][:count] - third[(copy - 1) * length :][:count] != by_copy).any(axis=1)
    return off
