"""A validation as JSON: integers are bytes, keys are sorted, minor versions only add."""

import json
from dataclasses import asdict
from typing import Any

from memplan.report.json import SCHEMA_VERSION
from memplan.report.json import document as estimate_document
from memplan.validate.records import Alignment, Peaks, Validation


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
        "predicted": validation.predicted._asdict(),
        "measured": measured.peaks._asdict(),
        "error_bytes": errors(validation.predicted, measured.peaks),
        "run": {
            "steps": run.steps,
            "seconds": run.seconds,
            "retries": measured.retries,
            "context_bytes": measured.context_bytes,
            "out_of_memory": run.out_of_memory or None,
            "notes": list(measured.notes),
        },
        "alignment": _alignment(validation.alignment),
        "estimate": estimate_document(validation.estimate),
    }


def errors(predicted: Peaks, measured: Peaks) -> dict[str, int | None]:
    """Predicted minus measured for each figure; None where one side has none."""
    pairs = {figure: (getattr(predicted, figure), getattr(measured, figure)) for figure in Peaks._fields}
    return {
        figure: None if ours is None or theirs is None else ours - theirs for figure, (ours, theirs) in pairs.items()
    }


def _alignment(alignment: Alignment | None) -> dict[str, Any] | None:
    if alignment is None:
        return None
    differences = [
        asdict(difference)
        | {
            side: [event._asdict() | {"cause": event.cause._asdict()} for event in getattr(difference, side)]
            for side in ("predicted", "real")
        }
        for difference in alignment.differences
    ]
    return {
        "predicted_events": alignment.predicted,
        "real_events": alignment.real,
        "matched_events": alignment.matched,
        "share": alignment.share,
        "exact": alignment.is_exact,
        "parts": [asdict(share) for share in alignment.shares],
        "differences": differences,
        "difference_count": alignment.difference_count,
        "tallies": [tally._asdict() | {"cause": tally.cause._asdict()} for tally in alignment.tallies],
    }
