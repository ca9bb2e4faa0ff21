"""The schema of every document that memplan exchanges, by name; what describes it is imported when it is asked for."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from memplan.errors import UsageError

WHERE: Final = {
    "audit": "memplan.report.audit.json",
    "batch": "memplan.report.batch.json",
    "checkpoint-plan": "memplan.report.checkpoint.json",
    "diff": "memplan.report.gate.diff_json",
    "doctor": "memplan.report.doctor.json",
    "estimate": "memplan.report.estimate.json",
    "gate": "memplan.report.gate.json",
    "graph": "memplan.report.graph.json",
    "monitor": "memplan.report.monitor.json",
    "numa": "memplan.report.numa.json",
    "profile": "memplan.report.profile.json",
    "project": "memplan.project.values",
    "recommend": "memplan.report.recommend.json",
    "reuse-plan": "memplan.report.reuse.json",
    "setup": "memplan.job.setup_file",
    "simulate": "memplan.report.simulate.json",
    "snapshot": "memplan.report.snapshot.json",
    "sweep": "memplan.report.sweep.json",
    "validate": "memplan.report.validate.json",
}
"""Name → the module whose ``DOCUMENT`` it is."""


def names() -> list[str]:
    """Return all names."""
    return sorted(WHERE)


def schema(name: str) -> Mapping[str, Any]:
    """Return the JSON Schema of a document.

    Raises:
        UsageError: There is no such document.
    """
    if name not in WHERE:
        raise UsageError(f"there is no document '{name}'", hint=f"those that there are: {', '.join(names())}")
    found: Mapping[str, Any] = import_module(WHERE[name]).DOCUMENT.schema
    return found
