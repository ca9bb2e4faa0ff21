"""The JSON report of ``memplan batch``: integers are bytes unless they count, keys are sorted."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from memplan.hardware.profile import GpuProfile
from memplan.measure.document import SCHEMA_VERSION
from memplan.plan.batch.records import BatchAnswer


def render(target: str, found: Iterable[tuple[GpuProfile, BatchAnswer]]) -> str:
    """All answers as one object."""
    results = [{"gpu": _gpu(profile)} | _answer(answer) for profile, answer in found]
    document = {"schema_version": SCHEMA_VERSION, "command": "batch", "target": target, "results": results}
    return json.dumps(document, sort_keys=True, indent=2, allow_nan=False)


def schema() -> Mapping[str, Any]:
    """The JSON Schema that every report obeys."""
    text = (files("memplan.report") / "schema" / "batch-1.0.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def _gpu(profile: GpuProfile) -> dict[str, Any]:
    return {"name": profile.name, "title": profile.title, "usable_bytes": profile.usable_bytes}


def _answer(answer: BatchAnswer) -> dict[str, Any]:
    figures = asdict(answer)
    return figures | {
        "result": figures.pop("ended"),
        "traced": list(answer.traced),
        "curve": [asdict(point) for point in answer.curve],
        "timings": {"search_seconds": figures.pop("seconds")},
    }
