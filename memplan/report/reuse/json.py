"""The JSON report of ``memplan reuse-plan``: integers are bytes, keys are sorted, minor versions only add."""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from memplan.measure.document import SCHEMA_VERSION
from memplan.plan.reuse.answer_records import ReuseAnswer


def render(answer: ReuseAnswer) -> str:
    """One answer as an object."""
    return json.dumps(document(answer), sort_keys=True, indent=2, allow_nan=False)


def schema() -> Mapping[str, Any]:
    """The JSON Schema that every report obeys."""
    text = (files("memplan.report") / "schema" / "reuse-plan-1.0.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def document(answer: ReuseAnswer) -> dict[str, Any]:
    """One answer as plain data."""
    placement, around = answer.placement, answer.surroundings
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "reuse-plan",
        "target": answer.target,
        "source": answer.kind,
        "result": answer.outcome,
        "fits": answer.fits,
        "method": answer.method,
        "capacity_bytes": answer.problem.capacity,
        "height_bytes": None if placement is None else placement.height,
        "lower_bound_bytes": answer.bound_bytes,
        "total_bytes": answer.total_bytes,
        "buffers": [
            {
                "id": buffer.name,
                "start": buffer.start,
                "end": buffer.end,
                "size_bytes": buffer.size,
                "offset_bytes": None if placement is None else placement.offsets[index],
                "label": around.labels[index] if around else "",
                "owner": around.owners[index] if around else "",
            }
            for index, buffer in enumerate(answer.problem.buffers)
        ],
        "reason": answer.reason,
        "device": around.device if around else None,
        "step": around.step if around else None,
        "options": dict(around.options) if around else {},
        "steps": around.repetitions if around else 1,
        "reserved_peak_bytes": around.reserved_bytes if around else None,
        "persistent_bytes": around.persistent_bytes if around else None,
        "other_streams_bytes": around.outside_bytes if around else None,
        "assumptions": list(around.assumptions) if around else [],
        "solve_seconds": answer.solve_seconds,
        "timings": {"read_seconds": answer.read_seconds, "solve_seconds": answer.solve_seconds},
        "versions": {"memplan": answer.memplan_version},
    }
