"""The JSON report of ``memplan recommend``: integers are bytes, keys are sorted, minor versions only add."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from memplan.measure.document import SCHEMA_VERSION
from memplan.plan.recommend.records import Candidate, Evaluated, Recommendation, WhatIf


def render(answer: Recommendation) -> str:
    """One answer as an object."""
    return json.dumps(document(answer), sort_keys=True, indent=2, allow_nan=False)


def schema() -> Mapping[str, Any]:
    """The JSON Schema that every report obeys."""
    text = (files("memplan.report") / "schema" / "recommend-1.0.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def document(answer: Recommendation) -> dict[str, Any]:
    """One answer as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "recommend",
        "target": answer.target,
        "options": dict(answer.options),
        "provenance": dict(answer.provenance),
        "parameters": answer.parameters,
        "trainable_parameters": answer.trainable_parameters,
        "gpu": {"name": answer.gpu, "title": answer.gpu_title, "usable_bytes": answer.usable_bytes},
        "gpus": answer.gpus,
        "limit_bytes": answer.limit_bytes,
        "thresholds": asdict(answer.thresholds) if answer.thresholds else None,
        "global_batch": answer.global_batch,
        "baseline": _evaluated(answer.baseline) if answer.baseline else None,
        "best": _evaluated(answer.best) if answer.best else None,
        "rows": [_evaluated(each) for each in answer.rows],
        "pareto": [_evaluated(each) for each in answer.pareto],
        "what_ifs": [_what_if(each) for each in answer.what_ifs],
        "rejected": [
            _candidate(each.candidate) | {"reason": each.reason, "traced": each.traced} for each in answer.rejected
        ],
        "cheapest": _what_if(answer.cheapest) if answer.cheapest else None,
        "remedies": [
            {"allow": list(each.allow), "configuration": _evaluated(each.evaluated)} for each in answer.remedies
        ],
        "critical_batch": asdict(answer.critical) if answer.critical else None,
        "result": answer.ended,
        "candidates": answer.candidates,
        "traces": answer.traces,
        "timings": {"search_seconds": answer.seconds},
        "assumptions": list(answer.assumptions),
        "not_modelled": list(answer.not_modelled),
        "versions": {"memplan": answer.memplan_version, "torch": answer.torch_version},
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    spec = candidate.spec
    return {
        "changes": list(candidate.changes),
        "groups": list(candidate.groups),
        "batch_size": spec.batch_size,
        "grad_accum": spec.grad_accum,
        "parallel": str(spec.parallel),
    }


def _evaluated(evaluated: Evaluated) -> dict[str, Any]:
    return _candidate(evaluated.candidate) | {
        "device_bytes": evaluated.device_bytes,
        "high_bytes": evaluated.high_bytes,
        "allocated_bytes": evaluated.allocated_bytes,
        "reserved_bytes": evaluated.reserved_bytes,
        "host_bytes": evaluated.host_bytes,
        "fits": evaluated.fits,
        "reason": evaluated.reason,
        "step_seconds": asdict(evaluated.time),
        "samples_per_second": evaluated.samples_per_second,
        "cost": evaluated.cost,
        "traced_micro_batches": evaluated.traced_micro_batches,
    }


def _what_if(what_if: WhatIf) -> dict[str, Any]:
    return _candidate(what_if.candidate) | {
        "allowed": what_if.allowed,
        "saved_bytes": what_if.saved_bytes,
        "extra_time": what_if.extra_time,
        "fits": what_if.fits,
        "reason": what_if.reason,
    }
