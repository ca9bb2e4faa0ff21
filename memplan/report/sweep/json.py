"""The JSON report of ``memplan sweep``: integers are bytes, keys are sorted, minor versions only add."""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from memplan.measure.document import SCHEMA_VERSION
from memplan.plan.sweep.records import Sweep, SweepRow
from memplan.report.recommend import json as recommend_json
from memplan.versions import installed


def render(answer: Sweep) -> str:
    """One sweep as an object."""
    return json.dumps(document(answer), sort_keys=True, indent=2, allow_nan=False)


def schema() -> Mapping[str, Any]:
    """The JSON Schema that every report obeys."""
    text = (files("memplan.report") / "schema" / "sweep-1.0.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def document(answer: Sweep) -> dict[str, Any]:
    """One sweep as plain data; each row's recommendation as ``memplan recommend`` writes it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "sweep",
        "project": answer.project.as_posix(),
        "backend": answer.backend,
        "rows": [_row(row) for row in answer.rows],
        "notes": list(answer.notes),
        "timings": {"sweep_seconds": answer.seconds},
        "versions": {"memplan": installed("memplan")},
    }


def _row(row: SweepRow) -> dict[str, Any]:
    return {
        "job": row.job,
        "gpu": row.gpu,
        "gpus": row.gpus,
        "fits": row.state,
        "error": row.error,
        "seconds": row.seconds,
        "recommendation": None if row.answer is None else recommend_json.document(row.answer),
    }
