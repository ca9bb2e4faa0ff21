"""The page of a recording: what was measured, over what was predicted where there is a plan."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from memplan.measure.digest_records import Curve, HistoryDigest
from memplan.measure.document import TIMELINE
from memplan.report.html.page import PageFrame, assemble
from memplan.report.html.view import Cells
from memplan.report.labels import LABELS
from memplan.report.profile.json import DOCUMENT, RecordingReport
from memplan.report.profile.records import Overlay
from memplan.report.profile.text import (
    COUNTERS,
    curve,
    difference,
    overhead_words,
    piece_name,
    seconds,
    sentences,
)
from memplan.runtime.profile.recording import Recording
from memplan.runtime.profile.records import Region
from memplan.units import format_bytes

MOST_SAMPLES = 4000
"""Of a curve without a plan; each is the highest moment of its stretch."""
OVER = "The measured curve over what was predicted, by category, after each allocation and free."
ALONE = {
    True: "Bytes alive after each allocation and free.",
    False: "The highest level between one look and the next.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A recording in the words that the template puts in place."""

    line: str
    """Where and how it was measured."""
    facts: tuple[Cells, ...]
    """Name and value."""
    explained: str
    """What the chart shows."""
    events: int
    """Moments on the chart's axis; 0: there is no chart."""
    held: tuple[Cells, ...]
    """Categories of the prediction and their words."""
    has_reserved: bool
    """Is what is reserved predicted to differ from what is allocated?"""
    gaps: int
    """Stretches of the prediction that did not come."""
    sentences: tuple[str, ...]
    """The comparison in words."""
    pieces: tuple[Cells, ...]
    """Rows of the comparison."""
    regions: tuple[Cells, ...]
    """Rows of the table of regions."""
    notes: tuple[str, ...]
    """Sentences."""


def render(recording: Recording, overlay: Overlay | None = None) -> str:
    """Write a recording as a page that needs nothing else."""
    digest = overlay.side.digest if overlay else _own_digest(recording)
    line = TIMELINE.plain(digest) if digest else None
    if line is not None:
        measured = overlay.curve if overlay else digest.curve.allocated if digest else ()
        line["phases"] = line["phases"] or _steps(recording)
        line["measured"] = {"bytes": list(measured), "gaps": [list(gap) for gap in overlay.gaps] if overlay else []}
    # As much of an estimate as the scripts read.
    estimate = {"peak": {}, "gpu": {"usable_bytes": 0}, "breakdown": {"context": 0}, "timeline": line}
    content = DOCUMENT.plain(RecordingReport(recording=replace(recording, events=None), comparison=overlay))
    view = _view(recording, overlay, digest)
    frame = PageFrame(
        kind="profile",
        title=f"{overlay.target}: predicted and measured" if overlay else f"{recording.name} on {recording.device}",
        versions={"memplan": "", "torch": ""} | dict(recording.versions),
        rests_on="what was measured is of this run alone",
    )
    return assemble(frame, {"view": view}, content | {"estimates": [estimate]}, template="profile.html.j2")


def _own_digest(recording: Recording) -> HistoryDigest | None:
    """The measured curve alone, in the shape of a timeline that predicts nothing."""
    levels = curve(recording)
    if not levels:
        return None
    moments = list(_highest(levels))
    allocated = tuple(levels[moment] for moment in moments)
    return HistoryDigest(
        events=len(levels),
        peak_event=moments[allocated.index(max(allocated))],
        reserved_peak_event=-1,
        spans=(),
        curve=Curve(events=tuple(moments), allocated=allocated, reserved=allocated, categories={}),
        holders=(),
        buffers=(),
        buffers_left_out=0,
        segments=(),
    )


def _steps(recording: Recording) -> list[dict[str, Any]]:
    """Steps as phases without a name: a recording knows when each began."""
    if recording.events is not None:
        times: Sequence[int] = recording.events.nanoseconds
    else:
        times = [sample.nanoseconds for sample in recording.samples]
    marks = [0, *(bisect_left(times, step) for step in recording.steps), len(times)]
    return [
        {"phase": "", "step": step, "start": start, "end": end}
        for step, (start, end) in enumerate(pairwise(marks))
        if start < end
    ]


def _highest(levels: Sequence[int]) -> Iterator[int]:
    stretch = -(-len(levels) // MOST_SAMPLES)
    for start in range(0, len(levels), stretch):
        yield max(range(start, min(start + stretch, len(levels))), key=levels.__getitem__)


def _view(recording: Recording, overlay: Overlay | None, digest: HistoryDigest | None) -> View:
    held = digest.curve if digest else None
    return View(
        line=f"{recording.name} on {recording.device}, counted by {COUNTERS.get(recording.source, recording.source)}, "
        f"depth {recording.depth}",
        facts=tuple(_facts(recording, overlay)),
        explained=OVER if overlay else ALONE[recording.events is not None],
        events=digest.events if digest else 0,
        held=tuple((name, LABELS[name]) for name in LABELS if held and name in held.categories),
        has_reserved=bool(overlay and held and held.reserved != held.allocated),
        gaps=len(overlay.gaps) if overlay else 0,
        sentences=tuple(sentences(overlay)) if overlay else (),
        pieces=tuple(_pieces(overlay)) if overlay else (),
        regions=tuple(map(_region, recording.regions)),
        notes=(*recording.notes, *(overlay.notes if overlay else ()), *overhead_words(recording)),
    )


def _facts(recording: Recording, overlay: Overlay | None) -> Iterator[Cells]:
    if overlay:
        yield "predicted peak", format_bytes(overlay.predicted_peak)
        yield "measured peak", format_bytes(overlay.measured_peak)
        yield "difference", difference(overlay.predicted_peak, overlay.measured_peak)
        if overlay.largest:
            yield "curves at most apart", format_bytes(abs(overlay.largest.nbytes))
        yield "events the same", f"{overlay.matched:,} of {max(overlay.predicted_events, overlay.measured_events):,}"
    else:
        yield "peak", format_bytes(recording.peak_bytes)
        yield "in the end", format_bytes(recording.end_bytes)
    yield "steps", str(len(recording.steps))
    yield "time", seconds(recording.seconds)


def _pieces(overlay: Overlay) -> Iterator[Cells]:
    for piece in overlay.pieces:
        peaks = (piece.predicted_peak_bytes, piece.measured_peak_bytes)
        counts = (piece.predicted_events, piece.measured_events, piece.matched)
        yield piece_name(piece), *map(format_bytes, peaks), difference(*peaks), *(f"{count:,}" for count in counts)


def _region(region: Region) -> Cells:
    sizes = (region.peak_bytes, region.growth_bytes, region.delta_bytes)
    return (
        " / ".join(region.path),
        f"{region.calls:,}",
        *map(format_bytes, sizes),
        "" if region.total_bytes is None else format_bytes(region.total_bytes),
        "" if region.allocations is None else f"{region.allocations:,}",
        seconds(region.seconds),
        seconds(region.self_seconds),
        str(region.errors or ""),
    )
