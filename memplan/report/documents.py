"""The schema of every document that memplan exchanges, by name; what describes it is imported when it is asked for."""

import json
from collections.abc import Mapping
from importlib import import_module
from importlib.resources import files
from typing import Any, Final

from memplan.errors import UsageError

WRITTEN: Final = {
    "audit": "memplan.report.audit.json",
    "batch": "memplan.report.batch.json",
    "checkpoint-plan": "memplan.report.checkpoint.json",
    "doctor": "memplan.report.doctor.json",
    "estimate": "memplan.report.estimate.json",
    "gate": "memplan.report.gate.json",
    "numa": "memplan.report.numa.json",
    "profile": "memplan.report.profile.json",
    "project": "memplan.project.keys",
    "recommend": "memplan.report.recommend.json",
    "reuse-plan": "memplan.report.reuse.json",
    "setup": "memplan.job.setup_file",
    "simulate": "memplan.report.simulate.json",
    "sweep": "memplan.report.sweep.json",
}
"""Name → the module whose ``DOCUMENT`` it is."""
KEPT: Final = ("monitor",)
"""Names whose schema is a file."""


def names() -> list[str]:
    """Return all names."""
    return sorted([*WRITTEN, *KEPT])


def schema(name: str) -> Mapping[str, Any]:
    """Return the JSON Schema of a document.

    Raises:
        UsageError: There is no such document.
    """
    if name in KEPT:
        kept: dict[str, Any] = json.loads((files("memplan.report") / "schema" / f"{name}-1.0.json").read_text("utf-8"))
        return kept
    if name not in WRITTEN:
        raise UsageError(f"there is no document '{name}'", hint=f"memplan schema knows {', '.join(names())}")
    found: Mapping[str, Any] = import_module(WRITTEN[name]).DOCUMENT.schema
    return found
