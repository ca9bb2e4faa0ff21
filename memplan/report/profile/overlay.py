"""A recording laid over a plan's timeline: which events are the same, and how far the curves are apart where they are.

Both are cut into set-up and steps, and the events of each piece aligned by size and order. Nothing is stretched: an
event that only one side has stays alone, is counted, and no distance is told for it.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from memplan.report.profile.match import Match, MeasuredEvents, matched, measured, pieces
from memplan.report.profile.plan import PlannedRun, Predicted, last_step, predicted, step_events
from memplan.report.profile.records import Deviation, Overlay, Piece
from memplan.runtime.profile.recording import Recording
from memplan.runtime.profile.records import Events
from memplan.units import format_bytes
from memplan.validate.compose import SCALAR_BYTES

CUDA_ROUNDING = 512
"""PyTorch's caching allocator hands out multiples of it (c10/cuda/CUDACachingAllocator.cpp, ``kMinBlockSize``)."""
NO_STEPS = "no steps were marked (step()): the run is compared as one piece"
BASE = "the recording began after set-up: {} that the plan has there are added to what was measured"
REPEATED = "the plan's steps after step {} repeat that one, as its trace found that they do"
SMALL = "the plan keeps no events of up to {}; larger ones are compared, and curves only at the plan's samples"
SCALARS = "events of up to {} are left out of both sides: on the CPU an optimizer makes a tensor of every number"
LONGER = "the plan's trace has {} steps and the run {}; only steps that both have are compared"


class _Placed(NamedTuple):
    """An event of the run, on the plan's timeline."""

    event: int
    """Where."""
    which: int
    """Index in ``Measured.sizes``."""
    is_matched: bool


def overlay(recording: Recording, events: Events, plan: PlannedRun) -> Overlay:
    """Compare a full recording with a plan."""
    side = predicted(plan, len(recording.steps), ignored_bytes=0 if recording.source == "cuda" else SCALAR_BYTES)
    rounding = CUDA_ROUNDING if recording.source == "cuda" else 1
    run = measured(events, recording.start_bytes, recording.steps, least=side.least, rounding=rounding)
    matches = [matched(*piece, side, run) for piece in pieces(side, run)]
    base = _base(matches, side, run)
    deviations = [each for match in matches for each in _deviations(match, side, run, base)]
    found = tuple(_piece(match, side, run, base) for match in matches)
    return Overlay(
        target=plan.estimate.target,
        gpu=plan.estimate.gpu.name,
        side=side,
        pieces=found,
        predicted_peak=max((piece.predicted_peak_bytes for piece in found), default=0),
        measured_peak=max((piece.measured_peak_bytes for piece in found), default=0),
        largest=max(deviations, key=lambda each: abs(each.nbytes), default=None),
        median_bytes=round(median(abs(each.nbytes) for each in deviations)) if deviations else 0,
        between_bytes=max((each for match in matches for each in _between(match, side, run, base)), default=0),
        compared=len(deviations),
        base_bytes=base,
        curve=tuple(_curve(side, run, _positions(matches, side), base)),
        gaps=tuple(gap for match in matches for gap in _gaps(match, side)),
        notes=tuple(_notes(recording, side, base)),
    )


def _notes(recording: Recording, side: Predicted, base: int) -> Iterator[str]:
    steps = last_step(side.digest.spans)
    if not recording.steps:
        yield NO_STEPS
    elif steps != len(recording.steps):
        yield LONGER.format(steps, len(recording.steps))
    if side.repeated:
        yield REPEATED.format(steps - side.repeated)
    if base:
        yield BASE.format(format_bytes(base))
    if side.digest.buffers_left_out:
        yield SMALL.format(format_bytes(side.least))
    elif side.least:
        yield SCALARS.format(format_bytes(side.least))


def _base(matches: Sequence[Match], side: Predicted, run: MeasuredEvents) -> int:
    """What the plan has before the first step, where the recording began only then and has none of set-up's events."""
    if not matches or matches[0].step or not matches[0].ours or matches[0].theirs:
        return 0
    first = step_events(side.digest.spans, 1).start
    alive = sum(buffer.nbytes for buffer in side.digest.buffers if buffer.start < first <= buffer.end)
    return max(0, alive - run.before)


def _deviations(match: Match, side: Predicted, run: MeasuredEvents, base: int) -> Iterator[Deviation]:
    for ours, theirs in match.pairs:
        event = side.indices[ours]
        if event in side.levels:
            phase = next(span.phase for span in side.digest.spans if span.start <= event < span.end)
            yield Deviation(event, match.step, phase, side.levels[event], run.levels[theirs] + base)


def _between(match: Match, side: Predicted, run: MeasuredEvents, base: int) -> Iterator[int]:
    """Distances where events differ; none where the plan's levels are not all known."""
    if side.digest.buffers_left_out:
        return
    # The last events of the piece before are where this one begins.
    begins = [(match.ours.start - 1, match.theirs.start - 1)] if match.ours.start and match.theirs.start else []
    ends = (match.ours.stop, match.theirs.stop)
    for (ours, theirs), (next_ours, next_theirs) in pairwise([*begins, *match.pairs, ends]):
        if next_ours - ours > 1 or next_theirs - theirs > 1:
            predicted_levels = [side.levels[side.indices[index]] for index in range(ours, next_ours)]
            levels = run.levels[theirs:next_theirs]
            yield abs(max(predicted_levels) - max(levels) - base)
            yield abs(min(predicted_levels) - min(levels) - base)


def _piece(match: Match, side: Predicted, run: MeasuredEvents, base: int) -> Piece:
    inside = range(side.indices[match.ours.start], side.indices[match.ours.stop - 1] + 1) if match.ours else range(0)
    return Piece(
        step=match.step,
        predicted_events=len(match.ours),
        measured_events=len(match.theirs),
        matched=len(match.pairs),
        predicted_peak_bytes=max((level for event, level in side.levels.items() if event in inside), default=0),
        measured_peak_bytes=max((run.tops[index] + base for index in match.theirs), default=0),
    )


def _positions(matches: Sequence[Match], side: Predicted) -> list[_Placed]:
    """Where on the plan's timeline each event of the run belongs.

    One that the plan does not have belongs right before the next one that both have.
    """
    placed: list[_Placed] = []
    for match in matches:
        partner = {theirs: ours for ours, theirs in match.pairs}
        following = side.indices[match.ours.stop - 1] if match.ours else (placed[-1].event if placed else 0)
        found = []
        for theirs in reversed(match.theirs):
            following = side.indices[partner[theirs]] if theirs in partner else following
            found.append(_Placed(following, theirs, theirs in partner))
        placed += reversed(found)
    return placed


def _curve(side: Predicted, run: MeasuredEvents, placed: Sequence[_Placed], base: int) -> Iterator[int]:
    """Measured bytes at the samples of the plan's curve; what rises above the plan in between is not lost."""
    level, place = run.start + base, 0
    for sample in side.digest.curve.events:
        above = 0
        while place < len(placed) and placed[place].event <= sample:
            event, which, is_matched = placed[place]
            level, place = run.tops[which] + base, place + 1
            if not is_matched or level > side.levels.get(event, level):
                above = max(above, level)
        yield max(level, above)


def _gaps(match: Match, side: Predicted) -> Iterator[tuple[int, int]]:
    """Stretches of the plan that have no counterpart."""
    both = {ours for ours, _ in match.pairs}
    start: int | None = None
    for ours in match.ours:
        if ours in both:
            if start is not None:
                yield start, side.indices[ours]
            start = None
        elif start is None:
            start = side.indices[ours]
    if start is not None:
        yield start, side.indices[match.ours.stop - 1] + 1
