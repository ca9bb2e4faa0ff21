"""The events of a recording, piece by piece beside those of a plan: which are the same in size and order."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from memplan.report.profile.plan import Predicted, last_step, step_events
from memplan.runtime.profile.records import Events
from memplan.validate.align import align


class MeasuredEvents(NamedTuple):
    """Events as they are compared."""

    sizes: "array[int]"
    levels: "array[int]"
    """Bytes alive after each, those of smaller events included."""
    tops: "array[int]"
    """Most alive from each up to the next, likewise."""
    marks: tuple[int, ...]
    """First event of each step."""
    start: int
    """Bytes alive before the first event of all."""
    before: int
    """Bytes alive before the first step."""


class Match(NamedTuple):
    """One piece, aligned."""

    step: int
    ours: range
    """Indices in ``Predicted.indices``."""
    theirs: range
    """Indices in ``Measured.sizes``."""
    pairs: list[tuple[int, int]]
    """Matched ones."""


def measured(events: Events, start: int, steps: Sequence[int], *, least: int, rounding: int) -> MeasuredEvents:
    """A recording's events as they are compared.

    ``start`` bytes are alive before the first. Events of at most ``least`` bytes count in the levels only; the
    allocator hands out multiples of ``rounding``.
    """
    sizes, levels, tops, kept = array("q"), array("q"), array("q"), array("q")
    level = before = start
    for at, size in zip(events.nanoseconds, events.sizes, strict=True):
        rounded = -(-abs(size) // rounding) * rounding
        level += rounded if size > 0 else -rounded
        if steps and at < steps[0]:
            before = level
        if rounded > least:
            sizes.append(rounded if size > 0 else -rounded)
            levels.append(level)
            tops.append(level)
            kept.append(at)
        elif tops:
            tops[-1] = max(tops[-1], level)
    marks = tuple(bisect_left(kept, step) for step in steps)
    return MeasuredEvents(sizes, levels, tops, marks, start, before)


def pieces(side: Predicted, run: MeasuredEvents) -> Iterator[tuple[int, range, range]]:
    """Set-up and the steps that both sides have, as ranges of known events."""
    if not run.marks:
        yield -1, range(len(side.indices)), range(len(run.sizes))
        return
    spans = side.digest.spans
    ends = [*run.marks[1:], len(run.sizes)]
    theirs = [range(run.marks[0]), *(range(*pair) for pair in zip(run.marks, ends, strict=True))]
    for step, came in enumerate(theirs[: last_step(spans) + 1]):
        inside = step_events(spans, step)
        first, end = (bisect_left(side.indices, event) for event in (inside.start, inside.stop))
        yield step, range(first, end), came


def matched(step: int, ours: range, theirs: range, side: Predicted, run: MeasuredEvents) -> Match:
    """Align one piece."""
    blocks = align(side.sizes[ours.start : ours.stop], run.sizes[theirs.start : theirs.stop])
    pairs = [
        (ours.start + block.i + offset, theirs.start + block.j + offset)
        for block in blocks
        for offset in range(block.length)
    ]
    return Match(step, ours, theirs, pairs)
