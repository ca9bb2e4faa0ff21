"""The JSON of ``memplan snapshot``."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from memplan.contract.document import Document, head
from memplan.contract.table import Constant, Source, Table, if_any
from memplan.report.snapshot.hints import hints
from memplan.snapshot.analysis import Moment, SnapshotAnalysis
from memplan.snapshot.comparison import HistoryReplay
from memplan.snapshot.frames import BEFORE_RECORDING
from memplan.snapshot.records import Frame
from memplan.snapshot.state import OutOfMemoryEvent, PoolState, StateNow
from memplan.snapshot.timeline import PlaceTotal
from memplan.snapshot.what_if import WhatIf

POINTS = 400
"""Points of the timeline at most; between two of them the highest one stands for all."""


class TimelinePoint(NamedTuple):
    """The highest moment of a stretch of the history."""

    event: int
    allocated_bytes: int
    requested_bytes: int
    reserved_bytes: int


class StackReport(NamedTuple):
    """A call stack, and what it holds."""

    owner: PlaceTotal
    """Its place."""
    frames: tuple[Frame, ...]
    """Innermost first; empty for what was there before the recording began."""


class NotCompared(NamedTuple):
    """A history that the model could not follow: nothing matched, and the peaks are those of the recording."""

    analysis: SnapshotAnalysis
    """The history."""


class Compared(NamedTuple):
    """The model beside the history."""

    replay: HistoryReplay
    """How far they agree."""
    compared: bool
    """Was there anything to compare?"""
    reason: str
    """Why not; empty where there was."""


class DeviceReport(NamedTuple):
    """What one device's part of a snapshot says; owners, stacks and their parts are cut where they are many."""

    analysis: SnapshotAnalysis
    """All that was found."""
    owners: tuple[PlaceTotal, ...]
    """Who held the memory at the peak, by place in the program."""
    stacks: tuple[StackReport, ...]
    """The same by whole call stack."""
    alive: tuple[PlaceTotal, ...]
    """Who holds what is still allocated."""
    timeline: tuple[TimelinePoint, ...]
    """Bytes over the history."""
    replay: Compared | NotCompared
    """The model beside the history."""
    what_if: tuple[WhatIf, ...]
    """The recorded policy, and others."""
    hints: tuple[str, ...]
    """What to try."""


class SnapshotReport(NamedTuple):
    """Everything about one device at the top level, and of several each in ``devices``."""

    file: str
    """What was read."""
    shown: DeviceReport
    """The device at the top level."""
    devices: tuple[DeviceReport, ...]
    """All, where there are several."""


def _bytes(*names: str) -> Mapping[str, Source]:
    return {f"{name}_bytes": name for name in names}


DOCUMENT = Document(
    name="snapshot",
    root=SnapshotReport,
    tables={
        SnapshotReport: Table(keys={**head("snapshot"), "devices": if_any("devices")}, spread=("shown",)),
        DeviceReport: Table(spread=("analysis",)),
        SnapshotAnalysis: Table(
            keys={
                "device": "device",
                "conf": {"text": "policy.conf", "source": "policy.source"},
                "history": {"events": "events", "seconds": "seconds"},
                "start": "start",
                "peak": "peak",
                "reserved_peak": "reserved_peak",
                "fragmentation": {
                    "at_peak": "slack",
                    "external_now": "now.external_fragmentation",
                    "internal_now": "now.internal_fragmentation",
                },
                "now": "now",
                "out_of_memory": "failures",
                "notes": "notes",
            },
            rest=False,
        ),
        Moment: Table(keys=_bytes("allocated", "requested", "reserved")),
        PlaceTotal: Table(keys={"bytes": "size", "parts": if_any("parts")}, spread=("place",), omit=("stack",)),
        StackReport: Table(spread=("owner",)),
        StateNow: Table(
            keys=_bytes("reserved", "allocated", "requested", "pending", "largest_free", "releasable", "stuck")
        ),
        PoolState: Table(keys={"private_pool": "pool", **_bytes("reserved", "allocated", "largest_free")}),
        OutOfMemoryEvent: Table(keys=_bytes("asked", "device_free", "allocated", "reserved")),
        Compared: Table(spread=("replay",)),
        HistoryReplay: Table(
            keys={
                "addresses": "allocations",
                "addresses_matched": "allocations_matched",
                "exact": "exact",
                **_bytes("peak_reserved", "peak_allocated", "recorded_peak_reserved"),
            },
            omit=("events", "start_sizes", "block_sizes"),
        ),
        NotCompared: Table(
            keys={
                "addresses": "analysis.allocations",
                "addresses_matched": Constant(0),
                "segment_events": "analysis.segment_events",
                "segment_events_matched": Constant(0),
                "final_blocks": Constant(0),
                "final_blocks_matched": Constant(0),
                "peak_reserved_bytes": "analysis.reserved_peak.reserved",
                "peak_allocated_bytes": "analysis.peak.allocated",
                "recorded_peak_reserved_bytes": "analysis.reserved_peak.reserved",
                "exact": Constant(value=False),
                "first_mismatch": Constant(""),
                "compared": Constant(value=False),
                "reason": "analysis.not_compared",
            }
        ),
        WhatIf: Table(
            keys={
                "peak_reserved_bytes": "profile.peak_reserved",
                "peak_allocated_bytes": "profile.peak_active",
                "peak_requested_bytes": "profile.peak_requested",
                "fragmentation_at_peak": "slack",
                "internal_fragmentation": "profile.internal_fragmentation",
                "end_reserved_bytes": "profile.end_reserved",
            }
        ),
    },
)


def render(name: str, analyses: Sequence[SnapshotAnalysis], shown: SnapshotAnalysis, *, top: int) -> str:
    """Render ``report_of``."""
    return DOCUMENT.render(report_of(name, analyses, shown, top=top))


def report_of(name: str, analyses: Sequence[SnapshotAnalysis], shown: SnapshotAnalysis, *, top: int) -> SnapshotReport:
    """Everything about one device at the top level, and, of several, each in ``devices``.

    At most ``top`` owners, stacks and the like are listed.
    """
    devices = tuple(_report(analysis, top) for analysis in analyses) if len(analyses) > 1 else ()
    return SnapshotReport(name, _report(shown, top), devices)


def _report(analysis: SnapshotAnalysis, top: int) -> DeviceReport:
    def cut(owners: Sequence[PlaceTotal]) -> tuple[PlaceTotal, ...]:
        return tuple(replace(owner, parts=cut(owner.parts)) for owner in owners[:top])

    return DeviceReport(
        analysis=analysis,
        owners=cut(analysis.owners),
        stacks=tuple(
            StackReport(owner, () if owner.stack == BEFORE_RECORDING else owner.stack) for owner in cut(analysis.stacks)
        ),
        alive=cut(analysis.alive),
        timeline=_points(analysis),
        replay=_replay(analysis),
        what_if=tuple(found for found in (analysis.baseline, *analysis.what_ifs) if found is not None),
        hints=tuple(hints(analysis)),
    )


def _points(analysis: SnapshotAnalysis) -> tuple[TimelinePoint, ...]:
    curves = analysis.curves
    count = len(curves.allocated)
    parts = min(count, POINTS)
    points = []
    for part in range(parts):
        indices = range(part * count // parts, (part + 1) * count // parts)
        highest = max(indices, key=curves.allocated.__getitem__)
        reserved = max(curves.reserved[index] for index in indices)
        points.append(TimelinePoint(highest, curves.allocated[highest], curves.requested[highest], reserved))
    return tuple(points)


def _replay(analysis: SnapshotAnalysis) -> Compared | NotCompared:
    if analysis.replay is None:
        return NotCompared(analysis)
    reason = "" if analysis.events else "no history was recorded"
    return Compared(analysis.replay, not reason, reason)
