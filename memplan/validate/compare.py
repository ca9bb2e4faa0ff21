"""Puts two allocation streams side by side: what is the same, and where and why they part."""

import itertools
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from memplan.validate.align import align
from memplan.validate.records import PARTS, Alignment, AllocationStream, Cause, Difference, Named, Share, Tally

KINDS_KEPT = 20
"""Kinds of differences kept; the first tell most, since later ones often follow from them."""
EVENTS_KEPT = 4
"""Events shown of each side of a difference."""
TALLIES_KEPT = 20


class _Gap(NamedTuple):
    """Events between two matched blocks: half-open ranges of both streams."""

    step: int
    predicted: range
    real: range


def compare(predicted: AllocationStream, real: AllocationStream, *, ignored_bytes: int = 0) -> Alignment:
    """Align two streams step by step, over the steps that both have; frees that follow each other count as a set.

    The predicted one has phases. Events of at most ``ignored_bytes`` are left out of both.
    """
    predicted, real = without_small(predicted, ignored_bytes), without_small(real, ignored_bytes)
    pieces = list(_pieces(predicted, real))
    found = [gap for step, (ours, theirs) in enumerate(pieces) for gap in _gaps(step, predicted, real, ours, theirs)]
    gaps = [gap for run in _runs_of_frees(found, predicted) for gap in run if not _same_set(run, predicted, real)]
    ours, theirs = (sum(len(piece[side]) for piece in pieces) for side in (0, 1))
    return Alignment(
        predicted=ours,
        real=theirs,
        matched=ours - sum(len(gap.predicted) for gap in gaps),
        shares=_shares(predicted, pieces, gaps),
        differences=_differences(predicted, real, gaps),
        difference_count=len(gaps),
        tallies=_tallies(predicted, real, gaps),
    )


def without_small(stream: AllocationStream, ignored_bytes: int) -> AllocationStream:
    """The stream without events of at most so many bytes."""
    if not ignored_bytes:
        return stream
    kept = [index for index, size in enumerate(stream.sizes) if abs(size) > ignored_bytes]
    return replace(
        stream,
        sizes=array("q", (stream.sizes[index] for index in kept)),
        causes=array("l", (stream.causes[index] for index in kept)),
        phases=None if stream.phases is None else array("b", (stream.phases[index] for index in kept)),
        marks=tuple(bisect_left(kept, mark) for mark in stream.marks),
    )


def _pieces(predicted: AllocationStream, real: AllocationStream) -> Iterator[tuple[range, range]]:
    """Set-up and each step as ranges of both streams."""
    ours, theirs = _cuts(predicted), _cuts(real)
    for index in range(min(len(ours), len(theirs)) - 1):
        yield range(ours[index], ours[index + 1]), range(theirs[index], theirs[index + 1])


def _cuts(stream: AllocationStream) -> list[int]:
    return [0, *stream.marks, len(stream)]


def _gaps(step: int, predicted: AllocationStream, real: AllocationStream, ours: range, theirs: range) -> Iterator[_Gap]:
    blocks = align(predicted.sizes[ours.start : ours.stop], real.sizes[theirs.start : theirs.stop])
    i, j = ours.start, theirs.start
    for block in blocks:
        at_i, at_j = ours.start + block.i, theirs.start + block.j
        if at_i > i or at_j > j:
            yield _Gap(step, range(i, at_i), range(j, at_j))
        i, j = at_i + block.length, at_j + block.length
    if i < ours.stop or j < theirs.stop:
        yield _Gap(step, range(i, ours.stop), range(j, theirs.stop))


def _runs_of_frees(gaps: Sequence[_Gap], predicted: AllocationStream) -> Iterator[list[_Gap]]:
    """Gaps together where all predicted events from one to the next are frees."""
    run: list[_Gap] = []
    for gap in gaps:
        since = range(run[0].predicted.start, gap.predicted.stop) if run else range(0)
        if run and (run[-1].step != gap.step or not _all_freed(predicted, since)):
            yield run
            run = []
        run.append(gap)
    if run:
        yield run


def _same_set(run: Sequence[_Gap], predicted: AllocationStream, real: AllocationStream) -> bool:
    """Do both sides free the same here, in another order?

    That order changes neither a peak nor the blocks that are left, and a real one may be that of addresses: autocast's
    cache of casts is a hash table (aten/src/ATen/autocast_mode.cpp ``cached_casts``).
    """
    ours = range(run[0].predicted.start, run[-1].predicted.stop)
    theirs = range(run[0].real.start, run[-1].real.stop)
    if not (_all_freed(predicted, ours) and _all_freed(real, theirs)):
        return False
    return sorted(predicted.sizes[ours.start : ours.stop]) == sorted(real.sizes[theirs.start : theirs.stop])


def _all_freed(stream: AllocationStream, events: range) -> bool:
    return all(size < 0 for size in stream.sizes[events.start : events.stop])


def _phase(stream: AllocationStream, index: int) -> int:
    """The phase of an event; beyond the end, that of the last."""
    if stream.phases is None or not stream.phases:
        return 0
    return stream.phases[min(index, len(stream.phases) - 1)]


def _shares(
    predicted: AllocationStream, pieces: Sequence[tuple[range, range]], gaps: Sequence[_Gap]
) -> tuple[Share, ...]:
    ours = Counter(_phase(predicted, index) for piece, _ in pieces for index in piece)
    lost = Counter(_phase(predicted, index) for gap in gaps for index in gap.predicted)
    # A real event without a counterpart counts to the phase in which the prediction stands just then.
    extra: Counter[int] = Counter()
    for gap in gaps:
        extra[_phase(predicted, gap.predicted.start)] += len(gap.real)
    return tuple(
        Share(
            part=part, predicted=ours[code], real=ours[code] - lost[code] + extra[code], matched=ours[code] - lost[code]
        )
        for code, part in enumerate(PARTS)
        if ours[code] or extra[code]
    )


def _differences(predicted: AllocationStream, real: AllocationStream, gaps: Sequence[_Gap]) -> tuple[Difference, ...]:
    """The first difference of each kind: a model's layers all differ in the same way."""
    kinds: dict[Hashable, list[_Gap]] = {}
    for gap in gaps:
        kinds.setdefault((_kind(predicted, gap.predicted), _kind(real, gap.real)), []).append(gap)
    return tuple(
        _difference(predicted, real, alike[0], len(alike)) for alike in itertools.islice(kinds.values(), KINDS_KEPT)
    )


def _kind(stream: AllocationStream, indices: range) -> Hashable:
    return tuple((stream.sizes[index] > 0, stream.known[stream.causes[index]].what) for index in indices)


def _difference(predicted: AllocationStream, real: AllocationStream, gap: _Gap, times: int) -> Difference:
    return Difference(
        step=gap.step,
        part=PARTS[_phase(predicted, gap.predicted.start)],
        predicted=tuple(_named(predicted, index) for index in gap.predicted[:EVENTS_KEPT]),
        real=tuple(_named(real, index) for index in gap.real[:EVENTS_KEPT]),
        predicted_events=len(gap.predicted),
        real_events=len(gap.real),
        times=times,
    )


def _named(stream: AllocationStream, index: int) -> Named:
    size = stream.sizes[index]
    return Named("alloc" if size > 0 else "free", abs(size), stream.known[stream.causes[index]])


def _tallies(predicted: AllocationStream, real: AllocationStream, gaps: Sequence[_Gap]) -> tuple[Tally, ...]:
    """Allocations in differences by cause; a free that came elsewhere follows from what it frees or from its moment."""
    counts: Counter[tuple[Literal["predicted", "real"], Cause]] = Counter()
    sizes: Counter[tuple[Literal["predicted", "real"], Cause]] = Counter()
    for gap in gaps:
        sides: tuple[tuple[Literal["predicted", "real"], AllocationStream, range], ...] = (
            ("predicted", predicted, gap.predicted),
            ("real", real, gap.real),
        )
        for side, stream, indices in sides:
            for index in indices:
                key = side, stream.known[stream.causes[index]]
                counts[key] += 1
                sizes[key] += max(stream.sizes[index], 0)
    ranked = sorted(counts, key=lambda key: (-sizes[key], -counts[key], key))[:TALLIES_KEPT]
    return tuple(Tally(side, cause, counts[side, cause], sizes[side, cause]) for side, cause in ranked)
