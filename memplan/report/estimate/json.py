"""The JSON report (``memplan.measure.document``), as text, and its schema."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import zip_longest
from typing import Any

from memplan.measure.digest_document import timeline_document
from memplan.measure.digest_records import HistoryDigest
from memplan.measure.document import SCHEMA_VERSION, document
from memplan.measure.records import Estimate


def render(estimates: Sequence[Estimate], digests: Sequence[HistoryDigest | None] = ()) -> str:
    """One estimate as an object; several as ``{"estimates": [...]}`` of the same objects.

    Args:
        estimates: What is written.
        digests: The history of each, where it is to be written as its ``timeline``.
    """
    content = together([with_timeline(*pair) for pair in zip_longest(estimates, digests)])
    return json.dumps(content, sort_keys=True, indent=2, allow_nan=False)


def with_timeline(estimate: Estimate, digest: HistoryDigest | None) -> dict[str, Any]:
    """An estimate as plain data, its timeline added where there is one."""
    return document(estimate) | ({"timeline": timeline_document(digest)} if digest else {})


def together(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One estimate as it is, several as one object."""
    several = {"schema_version": SCHEMA_VERSION, "command": "estimate", "estimates": list(documents)}
    return documents[0] if len(documents) == 1 else several


def schema() -> Mapping[str, Any]:
    """The JSON Schema that every report obeys."""
    loaded: dict[str, Any] = json.loads((files("memplan.report") / "schema" / "estimate-1.0.json").read_text("utf-8"))
    return loaded
