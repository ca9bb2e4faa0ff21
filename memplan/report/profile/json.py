"""A recording as JSON, with its comparison where there is a plan: schema ``profile-1.0``."""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from memplan.report.profile.records import Overlay
from memplan.runtime.profile.document import document
from memplan.runtime.profile.records import Recording


def render(recording: Recording, overlay: Overlay | None = None) -> str:
    """The recording as one object; ``comparison`` is null without a plan."""
    content = document(recording) | {"comparison": comparison(overlay) if overlay else None}
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def comparison(overlay: Overlay) -> dict[str, Any]:
    """A comparison as plain data."""
    largest = overlay.largest
    return {
        "target": overlay.target,
        "gpu": overlay.gpu,
        "predicted_peak_bytes": overlay.predicted_peak,
        "measured_peak_bytes": overlay.measured_peak,
        "events": {
            "predicted": overlay.predicted_events,
            "measured": overlay.measured_events,
            "matched": overlay.matched,
            "compared": overlay.compared,
        },
        "largest_deviation": largest and largest._asdict() | {"bytes": largest.nbytes},
        "median_deviation_bytes": overlay.median_bytes,
        "between_bytes": overlay.between_bytes,
        "base_bytes": overlay.base_bytes,
        "pieces": [piece._asdict() for piece in overlay.pieces],
        "notes": list(overlay.notes),
    }


def schema() -> Mapping[str, Any]:
    """The JSON Schema that every recording obeys."""
    loaded: dict[str, Any] = json.loads((files("memplan.report") / "schema" / "profile-1.0.json").read_text("utf-8"))
    return loaded
