"""The JSON report of ``memplan sweep``; each row's recommendation stands as ``memplan recommend`` writes it."""

from memplan.contract.document import Document, head, memplan_version
from memplan.contract.table import Table
from memplan.plan.sweep.records import Sweep, SweepRow
from memplan.report.recommend import json as recommend_json

DOCUMENT = Document(
    name="sweep",
    root=Sweep,
    tables={
        **recommend_json.DOCUMENT.tables,
        Sweep: Table(
            keys={
                **head("sweep"),
                "timings": {"sweep_seconds": "seconds"},
                "versions": {"memplan": memplan_version},
            }
        ),
        SweepRow: Table(keys={"fits": "state", "recommendation": "answer"}),
    },
)
render = DOCUMENT.render
