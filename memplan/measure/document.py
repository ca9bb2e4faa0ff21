"""An estimate as plain data, the JSON contract 1.0: integers are bytes, keys are sorted, minor versions only add.

An UNKNOWN verdict carries no figures: ``peak``, ``breakdown``, ``headroom_bytes`` and ``fragmentation`` are null.
"""

from dataclasses import asdict
from typing import Any

from memplan.measure.records import Estimate, IntervalBasis, Owner, PeakFacts, Verdict

SCHEMA_VERSION = "1.0"


def document(estimate: Estimate) -> dict[str, Any]:
    """One estimate as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "estimate",
        "target": estimate.target,
        "verdict": str(estimate.verdict),
        "code": estimate.verdict.code,
        "gpu": asdict(estimate.gpu),
        "model": {"parameters": estimate.parameters, "trainable_parameters": estimate.trainable_parameters},
        "options": dict(estimate.options),
        **_figures(estimate),
        "kv_cache": None if estimate.kv_cache is None else asdict(estimate.kv_cache),
        "flops_per_step": estimate.flops_per_step,
        "owners": [_owner(owner) for owner in estimate.owners],
        "advice": [asdict(advice) for advice in estimate.advice],
        "assumptions": list(estimate.assumptions),
        "not_modelled": list(estimate.not_modelled),
        "provenance": dict(estimate.provenance),
        "timings": dict(estimate.timings),
        "trace": {"steps": estimate.steps_traced, "repeats": estimate.repeats},
        "versions": {"memplan": estimate.memplan_version, "torch": estimate.torch_version},
    }


def _owner(owner: Owner) -> dict[str, Any]:
    # A model has thousands of them, and ``asdict`` copies deeply: for a gate of many jobs it took longer than all else.
    return {"module": owner.module, "source": owner.source, "category": owner.category, "bytes": owner.bytes}


def _figures(estimate: Estimate) -> dict[str, Any]:
    if estimate.verdict is Verdict.UNKNOWN:
        return dict.fromkeys(("peak", "breakdown", "headroom_bytes", "fragmentation"))
    return {
        "peak": _peak(estimate.peak),
        "breakdown": {str(category): size for category, size in estimate.breakdown.items()},
        # A device without a fixed limit (the cpu profile) has no headroom to speak of.
        "headroom_bytes": estimate.headroom_bytes if estimate.gpu.usable_bytes else None,
        "fragmentation": asdict(estimate.fragmentation),
    }


def _peak(peak: PeakFacts) -> dict[str, Any]:
    facts = asdict(peak)
    del facts["basis"]
    return facts | {"interval": _interval(peak.basis)}


def _interval(basis: IntervalBasis | None) -> dict[str, Any] | None:
    if basis is None:
        return None
    return {
        "level": basis.level,
        "class": basis.workload,
        "runs": basis.runs,
        "class_runs": basis.own_runs,
        "sources": basis.sources,
        "figure": basis.figure or None,
        "low_ratio": basis.low_ratio,
        "high_ratio": basis.high_ratio,
    }
