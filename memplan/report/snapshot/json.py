"""The JSON of ``memplan snapshot``, contract 1.0: integers are bytes, keys are sorted, minor versions only add."""

import json
from collections.abc import Sequence
from typing import Any

from memplan.contract.document import SCHEMA_VERSION
from memplan.report.snapshot.hints import hints
from memplan.snapshot.analysis import Moment, SnapshotAnalysis
from memplan.snapshot.comparison import HistoryReplay
from memplan.snapshot.frames import BEFORE_RECORDING, Place
from memplan.snapshot.state import OutOfMemoryEvent
from memplan.snapshot.timeline import Owner
from memplan.snapshot.what_if import WhatIf

POINTS = 400
"""Points of the timeline at most; between two of them the highest one stands for all."""


def render(name: str, analyses: Sequence[SnapshotAnalysis], shown: SnapshotAnalysis, *, top: int) -> str:
    """Everything about one device at the top level, and, of several, each in ``devices``.

    Args:
        name: The file.
        analyses: All devices that were looked at.
        shown: The one at the top level.
        top: Owners, stacks and the like to list at most.
    """
    document = {"schema_version": SCHEMA_VERSION, "command": "snapshot", "file": name, **_device(shown, top)}
    if len(analyses) > 1:
        document["devices"] = [_device(analysis, top) for analysis in analyses]
    # What a file says may hold lone surrogates, so text is escaped.
    return json.dumps(document, sort_keys=True, indent=2, allow_nan=False)


def _device(analysis: SnapshotAnalysis, top: int) -> dict[str, Any]:
    return {
        "device": analysis.device,
        "conf": {"text": analysis.policy.conf, "source": analysis.policy.source},
        "history": {"events": analysis.events, "seconds": analysis.seconds},
        "start": _moment(analysis.start),
        "peak": _moment(analysis.peak),
        "reserved_peak": _moment(analysis.reserved_peak),
        "fragmentation": {
            "at_peak": analysis.slack,
            "external_now": analysis.now.external_fragmentation,
            "internal_now": analysis.now.internal_fragmentation,
        },
        "timeline": _points(analysis),
        "owners": [_owner(owner, top) for owner in analysis.owners[:top]],
        "stacks": [_owner(owner, top, stack=True) for owner in analysis.stacks[:top]],
        "now": _now(analysis),
        "alive": [_owner(owner, top) for owner in analysis.alive[:top]],
        "out_of_memory": [_failure(failure) for failure in analysis.failures],
        "replay": _replay(analysis),
        "what_if": [_what_if(found) for found in (analysis.baseline, *analysis.what_ifs) if found is not None],
        "hints": list(hints(analysis)),
        "notes": list(analysis.notes),
    }


def _moment(moment: Moment) -> dict[str, Any]:
    return {
        "event": moment.event,
        "seconds": moment.seconds,
        "allocated_bytes": moment.allocated,
        "requested_bytes": moment.requested,
        "reserved_bytes": moment.reserved,
        "place": _place(moment.place) if moment.place else None,
    }


def _place(place: Place) -> dict[str, Any]:
    return {"kind": str(place.kind), "file": place.file, "line": place.line, "name": place.name}


def _owner(owner: Owner, top: int, *, stack: bool = False) -> dict[str, Any]:
    document = {**_place(owner.place), "bytes": owner.size, "count": owner.count}
    if owner.parts:
        document["parts"] = [_owner(part, top) for part in owner.parts[:top]]
    if stack:
        frames = () if owner.stack == BEFORE_RECORDING else owner.stack
        document["frames"] = [frame._asdict() for frame in frames]
    return document


def _points(analysis: SnapshotAnalysis) -> list[dict[str, int]]:
    curves = analysis.curves
    count = len(curves.allocated)
    parts = min(count, POINTS)
    points = []
    for part in range(parts):
        indices = range(part * count // parts, (part + 1) * count // parts)
        highest = max(indices, key=curves.allocated.__getitem__)
        points.append(
            {
                "event": highest,
                "allocated_bytes": curves.allocated[highest],
                "requested_bytes": curves.requested[highest],
                "reserved_bytes": max(curves.reserved[index] for index in indices),
            }
        )
    return points


def _now(analysis: SnapshotAnalysis) -> dict[str, Any]:
    now = analysis.now
    return {
        "reserved_bytes": now.reserved,
        "allocated_bytes": now.allocated,
        "requested_bytes": now.requested,
        "pending_bytes": now.pending,
        "largest_free_bytes": now.largest_free,
        "releasable_bytes": now.releasable,
        "stuck_bytes": now.stuck,
        "pools": [
            {
                "stream": pool.stream,
                "small": pool.small,
                "expandable": pool.expandable,
                "private_pool": pool.pool,
                "segments": pool.segments,
                "reserved_bytes": pool.reserved,
                "allocated_bytes": pool.allocated,
                "largest_free_bytes": pool.largest_free,
            }
            for pool in now.pools
        ],
    }


def _failure(failure: OutOfMemoryEvent) -> dict[str, Any]:
    return {
        "event": failure.event,
        "asked_bytes": failure.asked,
        "device_free_bytes": failure.device_free,
        "allocated_bytes": failure.allocated,
        "reserved_bytes": failure.reserved,
        "cause": str(failure.cause),
        "place": _place(failure.place),
    }


def _replay(analysis: SnapshotAnalysis) -> dict[str, Any]:
    replay = analysis.replay
    if replay is None:
        return {**_not_compared(analysis), "compared": False, "reason": analysis.not_compared}
    reason = "" if analysis.events else "no history was recorded"
    return {**_compared(replay), "compared": not reason, "reason": reason}


def _compared(replay: HistoryReplay) -> dict[str, Any]:
    return {
        "addresses": replay.allocations,
        "addresses_matched": replay.allocations_matched,
        "segment_events": replay.segment_events,
        "segment_events_matched": replay.segment_events_matched,
        "final_blocks": replay.final_blocks,
        "final_blocks_matched": replay.final_blocks_matched,
        "peak_reserved_bytes": replay.peak_reserved,
        "peak_allocated_bytes": replay.peak_allocated,
        "recorded_peak_reserved_bytes": replay.recorded_peak_reserved,
        "exact": replay.exact,
        "first_mismatch": replay.first_mismatch,
    }


def _not_compared(analysis: SnapshotAnalysis) -> dict[str, Any]:
    """Nothing matched, and the peaks are those of the recording."""
    return {
        "addresses": analysis.allocations,
        "addresses_matched": 0,
        "segment_events": analysis.segment_events,
        "segment_events_matched": 0,
        "final_blocks": 0,
        "final_blocks_matched": 0,
        "peak_reserved_bytes": analysis.reserved_peak.reserved,
        "peak_allocated_bytes": analysis.peak.allocated,
        "recorded_peak_reserved_bytes": analysis.reserved_peak.reserved,
        "exact": False,
        "first_mismatch": "",
    }


def _what_if(found: WhatIf) -> dict[str, Any]:
    profile = found.profile
    return {
        "conf": found.conf,
        "peak_reserved_bytes": profile.peak_reserved,
        "peak_allocated_bytes": profile.peak_active,
        "peak_requested_bytes": profile.peak_requested,
        "fragmentation_at_peak": found.slack,
        "internal_fragmentation": profile.internal_fragmentation,
        "end_reserved_bytes": profile.end_reserved,
        "survives": found.survives,
    }
