"""The JSON reports of ``memplan checkpoint-plan``: integers are bytes, keys are sorted, minor versions only add."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from memplan.measure.document import SCHEMA_VERSION
from memplan.plan.checkpoint.answer_records import BlockRow, CheckpointAnswer
from memplan.plan.checkpoint.graph.answer import GraphAnswer


def render(answer: CheckpointAnswer | GraphAnswer) -> str:
    """One answer as an object."""
    return json.dumps(document(answer), sort_keys=True, indent=2, allow_nan=False)


def schema() -> Mapping[str, Any]:
    """The JSON Schema that every report obeys."""
    text = (files("memplan.report") / "schema" / "checkpoint-plan-1.0.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def document(answer: CheckpointAnswer | GraphAnswer) -> dict[str, Any]:
    """One answer as plain data."""
    own = _of_blocks(answer) if isinstance(answer, CheckpointAnswer) else _of_ops(answer)
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "checkpoint-plan",
        "target": answer.target,
        "result": answer.outcome,
        "budget_bytes": answer.budget_bytes,
        "peak_before_bytes": answer.peak_before_bytes,
        "peak_after_bytes": answer.peak_after_bytes,
        "overhead_ratio": answer.overhead_ratio,
        "gap": answer.gap,
        "least_feasible_bytes": answer.least_feasible_bytes,
        "binding": answer.binding,
        "solve_seconds": answer.solve_seconds,
        "assumptions": list(answer.assumptions),
    } | own


def _of_blocks(answer: CheckpointAnswer) -> dict[str, Any]:
    return {
        "gpu": {"name": answer.device, "title": answer.device_title},
        "options": dict(answer.options),
        "level": "block",
        "method": answer.method,
        "fits": answer.fits,
        "proved": answer.proved,
        "bound_for": answer.bound_for,
        "activation_before_bytes": answer.activation_before_bytes,
        "flops_ratio": answer.flops_ratio,
        "timings": {
            "trace_seconds": answer.trace_seconds,
            "solve_seconds": answer.solve_seconds,
            "prove_seconds": answer.prove_seconds,
        },
        "traces": answer.traces,
        "rounds": answer.rounds,
        "blocks": [_block(row) for row in answer.blocks],
        "segments": [list(segment.modules) for segment in answer.plan.segments],
        "pareto": [asdict(point) for point in answer.pareto],
        "not_modelled": list(answer.not_modelled),
        "versions": {"memplan": answer.memplan_version, "torch": answer.torch_version},
    }


def _of_ops(answer: GraphAnswer) -> dict[str, Any]:
    """What only a traced step has is empty."""
    return {
        "gpu": None,
        "options": {},
        "level": "op",
        "method": "search",
        "fits": answer.peak_after_bytes is not None and answer.peak_after_bytes <= answer.budget_bytes,
        "proved": answer.outcome in {"optimal", "infeasible"},
        "bound_for": "every schedule" if answer.outcome == "infeasible" else answer.bound_for,
        "flops_ratio": None,
        "timings": {
            "trace_seconds": answer.trace_seconds,
            "solve_seconds": answer.solve_seconds,
            "prove_seconds": 0.0,
        },
        "traces": 0,
        "rounds": 0,
        "blocks": [],
        "segments": [],
        "schedule": list(answer.schedule),
        "pareto": [],
        "not_modelled": [],
        "versions": {"memplan": answer.memplan_version}
        | ({"torch": answer.torch_version} if answer.torch_version else {}),
    }


def _block(row: BlockRow) -> dict[str, Any]:
    return asdict(row) | {"action": str(row.action), "saved": list(row.saved)}
