"""The JSON report of ``memplan simulate``: integers are bytes, keys are sorted, minor versions only add."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from memplan.measure.document import SCHEMA_VERSION
from memplan.simulate.records import PolicyRun, Simulation, StepFigures


def render(simulation: Simulation) -> str:
    """One simulation as an object."""
    return json.dumps(document(simulation), sort_keys=True, indent=2, allow_nan=False)


def schema() -> Mapping[str, Any]:
    """The JSON Schema that every report obeys."""
    loaded: dict[str, Any] = json.loads((files("memplan.report") / "schema" / "simulate-1.0.json").read_text("utf-8"))
    return loaded


def document(simulation: Simulation) -> dict[str, Any]:
    """One simulation as plain data."""
    workload, best = simulation.workload, simulation.recommendation
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "simulate",
        "target": workload.target,
        "gpu": asdict(simulation.gpu) if simulation.gpu else None,
        "options": dict(workload.options),
        "steps": len(workload.lengths),
        "seed": simulation.seed,
        "lengths": _lengths(workload.lengths),
        "traced_lengths": list(workload.traced_lengths),
        "recommendation": asdict(best) if best else None,
        "passed_bytes": simulation.passed_bytes,
        "without_leftovers": _without_leftovers(simulation.without_leftovers),
        "policies": [_policy(run, simulation.microseconds[run.name]) for run in simulation.policies],
        "assumptions": list(workload.assumptions),
        "not_modelled": list(workload.not_modelled),
        "timings": {
            "trace_seconds": workload.seconds,
            "simulate_seconds": sum(run.seconds for run in simulation.policies),
        },
        "versions": {"memplan": simulation.memplan_version},
    }


def _without_leftovers(run: PolicyRun | None) -> dict[str, Any] | None:
    if run is None:
        return None
    return {
        "reserved_bytes": run.peak_reserved,
        "requested_bytes": run.peak_requested,
        "fragmentation": run.fragmentation,
    }


def _lengths(lengths: tuple[int, ...]) -> dict[str, Any] | None:
    if not max(lengths):
        return None
    return {"shortest": min(lengths), "longest": max(lengths), "mean": sum(lengths) / len(lengths)}


def _policy(run: PolicyRun, microseconds: float) -> dict[str, Any]:
    return {
        "name": run.name,
        "conf": run.conf,
        "peak": {
            "requested_bytes": run.peak_requested,
            "allocated_bytes": run.peak_allocated,
            "reserved_bytes": run.peak_reserved,
        },
        "fragmentation": {
            "total": run.fragmentation,
            "external": run.external_fragmentation,
            "internal": run.internal_fragmentation,
        },
        "drift_bytes": run.drift,
        "largest_free_bytes": run.steps[-1].largest_free,
        "device_calls": run.calls._asdict(),
        "cost_microseconds": microseconds,
        "floor_bytes": run.floor,
        "out_of_memory": _failure(run),
        "limited": run.limited,
        "settled_at": run.settled_at,
        "notes": list(run.notes),
        "per_step": _per_step(run.steps[: run.settled_at]),
    }


def _failure(run: PolicyRun) -> dict[str, Any] | None:
    if run.out_of_memory is None:
        return None
    failure = run.out_of_memory
    return {
        "step": run.failed_step,
        "wanted_bytes": failure.wanted,
        "allocated_bytes": failure.allocated,
        "reserved_bytes": failure.reserved,
    }


def _per_step(steps: tuple[StepFigures, ...]) -> dict[str, list[int | float]]:
    """One list per figure, one entry per step that was played; where it settled, later steps repeat the last ones."""
    return {
        "length": [step.length for step in steps],
        "requested_bytes": [step.peak_requested for step in steps],
        "allocated_bytes": [step.peak_allocated for step in steps],
        "reserved_bytes": [step.peak_reserved for step in steps],
        "external_fragmentation": [step.external_fragmentation for step in steps],
        "internal_fragmentation": [step.internal_fragmentation for step in steps],
        "largest_free_bytes": [step.largest_free for step in steps],
        "device_calls": [
            step.calls.allocations + step.calls.frees + step.calls.maps + step.calls.unmaps for step in steps
        ],
        "retries": [step.calls.retries for step in steps],
    }
