"""The JSON report (``memplan.estimate.document``), as text, and its schema."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from memplan.estimate.document import SCHEMA_VERSION, document
from memplan.estimate.records import Estimate


def render(estimates: Sequence[Estimate]) -> str:
    """One estimate as an object; several as ``{"estimates": [...]}`` of the same objects."""
    documents = [document(estimate) for estimate in estimates]
    several = {"schema_version": SCHEMA_VERSION, "command": "estimate", "estimates": documents}
    return json.dumps(documents[0] if len(documents) == 1 else several, sort_keys=True, indent=2, allow_nan=False)


def schema() -> Mapping[str, Any]:
    """The JSON Schema that every report obeys."""
    loaded: dict[str, Any] = json.loads((files("memplan.report") / "schema" / "estimate-1.0.json").read_text("utf-8"))
    return loaded
