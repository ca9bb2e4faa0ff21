"""A validation as JSON. Streams themselves are left out: they hold up to a million events."""

from memplan.contract.document import Document, head
from memplan.contract.table import Table, or_null
from memplan.measure.document import ESTIMATE
from memplan.validate.records import Alignment, Named, Peaks, Share, Tally, Validation


def _difference(validation: Validation) -> Peaks:
    """Predicted minus measured for each figure; null where one side has none."""
    pairs = zip(validation.predicted, validation.run.measured.peaks, strict=True)
    return Peaks(*(None if ours is None or real is None else ours - real for ours, real in pairs))


DOCUMENT = Document(
    name="validate",
    root=Validation,
    tables={
        **ESTIMATE.tables,
        Validation: Table(
            keys={
                **head("validate"),
                "target": "estimate.target",
                "profile": "profile_note",
                "measured": "run.measured.peaks",
                "difference": _difference,
                "run": {
                    "steps": "run.steps",
                    "seconds": "run.seconds",
                    "retries": "run.measured.retries",
                    "context_bytes": "run.measured.context_bytes",
                    "out_of_memory": or_null("run.out_of_memory"),
                    "notes": "run.measured.notes",
                },
                "estimate": "estimate",
            }
        ),
        Peaks: Table(keys={f"{name}_bytes": name for name in Peaks._fields}),
        Alignment: Table(
            keys={
                "predicted_events": "predicted",
                "real_events": "real",
                "matched_events": "matched",
                "share": "share",
                "exact": "is_exact",
                "parts": "shares",
            }
        ),
        Share: Table(keys={"predicted_events": "predicted", "real_events": "real", "matched_events": "matched"}),
        Named: Table(keys={"bytes": "nbytes"}),
        Tally: Table(keys={"bytes": "nbytes"}),
    },
)
PEAKS = Document(name="peaks", root=Peaks, tables=DOCUMENT.tables)
"""Peaks of one side; null where there is no such figure."""
render = DOCUMENT.render
