"""A validation as JSON, contract 1.0: keys that hold bytes say so, keys are sorted, minor versions only add."""

import json
from dataclasses import asdict
from typing import Any

from memplan.contract.document import SCHEMA_VERSION
from memplan.measure.document import ESTIMATE
from memplan.validate.records import Alignment, Difference, Peaks, Validation


def render(validation: Validation) -> str:
    """The validation as one object."""
    return json.dumps(document(validation), sort_keys=True, indent=2, allow_nan=False)


def document(validation: Validation) -> dict[str, Any]:
    """The validation as plain data. Streams themselves are left out: they hold up to a million events."""
    run, measured = validation.run, validation.run.measured
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "validate",
        "target": validation.estimate.target,
        "device": asdict(validation.device),
        "profile": validation.profile_note,
        "predicted": peaks(validation.predicted),
        "measured": peaks(measured.peaks),
        "difference": differences(validation.predicted, measured.peaks),
        "run": {
            "steps": run.steps,
            "seconds": run.seconds,
            "retries": measured.retries,
            "context_bytes": measured.context_bytes,
            "out_of_memory": run.out_of_memory or None,
            "notes": list(measured.notes),
        },
        "alignment": _alignment(validation.alignment),
        "estimate": ESTIMATE.plain(validation.estimate),
    }


def peaks(found: Peaks) -> dict[str, int | None]:
    """Peaks of one side; null where there is no such figure."""
    return {f"{figure}_bytes": size for figure, size in found._asdict().items()}


def differences(predicted: Peaks, measured: Peaks) -> dict[str, int | None]:
    """Predicted minus measured for each figure; null where one side has none."""
    theirs = peaks(measured)
    return {
        key: None if ours is None or (real := theirs[key]) is None else ours - real
        for key, ours in peaks(predicted).items()
    }


def _alignment(alignment: Alignment | None) -> dict[str, Any] | None:
    if alignment is None:
        return None
    return {
        "predicted_events": alignment.predicted,
        "real_events": alignment.real,
        "matched_events": alignment.matched,
        "share": alignment.share,
        "exact": alignment.is_exact,
        "parts": [
            {
                "part": share.part,
                "predicted_events": share.predicted,
                "real_events": share.real,
                "matched_events": share.matched,
            }
            for share in alignment.shares
        ],
        "differences": [_difference(difference) for difference in alignment.differences],
        "difference_count": alignment.difference_count,
        "tallies": [
            {"side": tally.side, "events": tally.events, "bytes": tally.nbytes, "cause": tally.cause._asdict()}
            for tally in alignment.tallies
        ],
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return asdict(difference) | {
        side: [
            {"action": event.action, "bytes": event.nbytes, "cause": event.cause._asdict()}
            for event in getattr(difference, side)
        ]
        for side in ("predicted", "real")
    }
