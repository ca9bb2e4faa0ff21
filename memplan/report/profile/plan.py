"""The predicted side of a recording: a plan's timeline as a stream of events, as many steps as the run has."""

from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from memplan.measure.digest_records import Curve, DigestBuffer, HistoryDigest, Span
from memplan.measure.records import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """What was predicted of a run."""

    estimate: Estimate
    """The answer."""
    digest: HistoryDigest
    """Its timeline."""


class Predicted(NamedTuple):
    """A timeline as events."""

    digest: HistoryDigest
    """The timeline itself, with as many steps as there are."""
    repeated: int
    """How many of its steps repeat the last that was replayed."""
    indices: "array[int]"
    """Events that are known one by one, rising."""
    sizes: "array[int]"
    """What they allocate; negative for a free."""
    levels: dict[int, int]
    """Event → bytes alive after it, for all events, or where small buffers were left out for the curve's."""
    least: int
    """Events of at most so many bytes are not among them; 0: all are."""


def predicted(plan: PlannedRun, steps: int, *, ignored_bytes: int = 0) -> Predicted:
    """Lay a plan's timeline out.

    Beyond the steps replayed the last is repeated, if the trace found that it does. Events of at most ``ignored_bytes``
    count in the levels, but do not stand by themselves.
    """
    digest = plan.digest
    missing = max(0, steps - last_step(digest.spans))
    repeats = missing if plan.estimate.repeats and _closes(digest) else 0
    digest = repeated(digest, repeats)
    # Of the smallest buffers that were kept, others may have been left out.
    kept = min((buffer.nbytes for buffer in digest.buffers), default=0) if digest.buffers_left_out else 0
    least, sizes = max(kept, ignored_bytes), _sizes(digest)
    if digest.buffers_left_out:
        levels = dict(zip(digest.curve.events, digest.curve.allocated, strict=True))
    else:
        levels = dict(enumerate(accumulate(sizes)))
    known = [index for index, size in enumerate(sizes) if abs(size) > least]
    return Predicted(digest, repeats, array("q", known), array("q", (sizes[index] for index in known)), levels, least)


def last_step(spans: Sequence[Span]) -> int:
    """Number of the last step; 0 where there is none."""
    return max((span.step for span in spans), default=0)


def step_events(spans: Sequence[Span], step: int) -> range:
    """The events of a step; of set-up, for 0."""
    inside = [span for span in spans if span.step == step]
    return range(min(span.start for span in inside), max(span.end for span in inside)) if inside else range(0)


def repeated(digest: HistoryDigest, times: int) -> HistoryDigest:
    """A timeline whose last step comes so many times more.

    What the step frees from before it, the repetition frees of what the step left in its place.
    """
    last = last_step(digest.spans)
    step = step_events(digest.spans, last)
    if not times or not last or step.stop != digest.events:
        return digest
    length, curve = len(step), digest.curve
    inside = [index for index, event in enumerate(curve.events) if event in step]
    shifts = [length * number for number in range(1, times + 1)]

    def more(values: Sequence[int]) -> tuple[int, ...]:
        return (*values, *(values[index] for _ in shifts for index in inside))

    return replace(
        digest,
        events=digest.events + length * times,
        spans=(
            *digest.spans,
            *(
                Span(span.phase, last + number, span.start + shift, span.end + shift)
                for number, shift in enumerate(shifts, 1)
                for span in digest.spans
                if span.step == last
            ),
        ),
        curve=Curve(
            events=(*curve.events, *(curve.events[index] + shift for shift in shifts for index in inside)),
            allocated=more(curve.allocated),
            reserved=more(curve.reserved),
            categories={name: more(held) for name, held in curve.categories.items()},
        ),
        buffers=tuple(sorted(_buffers(digest, step, shifts), key=lambda buffer: buffer.start)),
    )


def _buffers(digest: HistoryDigest, step: range, shifts: Sequence[int]) -> list[DigestBuffer]:
    """All buffers of the longer history."""
    length, end = len(step), digest.events + shifts[-1]
    # A buffer from before the step that dies in it, by size and holder: when it does. Its heir dies one step later.
    deaths: dict[tuple[int, int], list[int]] = defaultdict(list)
    for buffer in digest.buffers:
        if buffer.start < step.start and buffer.end in step:
            deaths[buffer.nbytes, buffer.holder].append(buffer.end)
    found = []
    for buffer in digest.buffers:
        if buffer.start not in step:
            found.append(buffer if buffer.end < digest.events else buffer._replace(end=end))
            continue
        if buffer.end < digest.events:
            found += [buffer._replace(start=buffer.start + shift, end=buffer.end + shift) for shift in (0, *shifts)]
            continue
        waiting = deaths[buffer.nbytes, buffer.holder]
        dies = waiting.pop(0) + length if waiting else None
        for shift in (0, *shifts):
            later = end if dies is None else min(dies + shift, end)
            found.append(buffer._replace(start=buffer.start + shift, end=later))
            if dies is None:
                break
    return found


def _closes(digest: HistoryDigest) -> bool:
    """Does the last step leave as many bytes of the known buffers as it found?"""
    step = step_events(digest.spans, last_step(digest.spans))
    return sum(_sizes(digest)[step.start : step.stop]) == 0


def _sizes(digest: HistoryDigest) -> "array[int]":
    """What each event allocates or frees; 0 for those that are not known."""
    sizes = array("q", bytes(8 * digest.events))
    for buffer in digest.buffers:
        sizes[buffer.start] += buffer.nbytes
        if buffer.end < digest.events:
            sizes[buffer.end] -= buffer.nbytes
    return sizes
