"""A recording as JSON, with its comparison where there is a plan."""

import json
from dataclasses import dataclass

from memplan.contract.document import Document
from memplan.contract.table import Table
from memplan.report.profile.records import Deviation, Overlay
from memplan.runtime.profile.recording import DOCUMENT as RECORDING
from memplan.runtime.profile.recording import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingReport:
    """A recording, and how it compares with a plan."""

    recording: Recording
    """What was recorded."""
    comparison: Overlay | None
    """Null without a plan."""


DOCUMENT = Document(
    name="profile",
    # What ``Recording.save`` writes has no comparison.
    root=RecordingReport | Recording,
    tables={
        **RECORDING.tables,
        RecordingReport: Table(spread=("recording",)),
        Overlay: Table(
            keys={
                "predicted_peak_bytes": "predicted_peak",
                "measured_peak_bytes": "measured_peak",
                "events": {
                    "predicted": "predicted_events",
                    "measured": "measured_events",
                    "matched": "matched",
                    "compared": "compared",
                },
                "largest_deviation": "largest",
                "median_deviation_bytes": "median_bytes",
            },
            omit=("side", "curve", "gaps"),
        ),
        Deviation: Table(keys={"bytes": "nbytes"}),
    },
)


def render(recording: Recording, overlay: Overlay | None = None) -> str:
    """Render the recording as one object on one line; ``comparison`` is null without a plan."""
    plain = DOCUMENT.plain(RecordingReport(recording=recording, comparison=overlay))
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
