"""Reads a prediction out of what ``memplan estimate -f json=FILE`` wrote. Torch-free, and free of the estimator."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memplan.contract.document import Document, of_command
from memplan.contract.table import Table
from memplan.errors import UsageError
from memplan.files.documents import read_json
from memplan.files.read import UnreadableError
from memplan.runtime.monitor.records import PlanCurve, RunPlan

_HOW = "make one with `memplan estimate TARGET --gpu NAME -f json=FILE` (--timeline adds the curve)"


def _known(content: Any) -> Any:
    if isinstance(content, dict) and content.get("verdict") == "unknown":
        raise UsageError("this prediction is UNKNOWN: there is nothing to compare with")
    return content


def _same_length(timeline: Any) -> Any:
    if isinstance(timeline, dict) and isinstance(curve := timeline.get("curve"), dict):
        columns = [*curve.values(), *curve.get("categories", {}).values()]
        if len({len(column) for column in columns if isinstance(column, list)}) > 1:
            raise ValueError("the timeline's columns differ in length")
    return timeline


ESTIMATED = Document(
    name="estimate",
    root=RunPlan,
    tables={
        RunPlan: Table(
            keys={
                "gpu": {"name": "gpu", "total_bytes": "total", "usable_bytes": "usable"},
                "peak": {
                    **{f"{name}_bytes": name for name in ("allocated", "reserved", "device", "low", "high")},
                    "phase": "phase",
                    "module": "module",
                },
                "timeline": "curve",
            },
            before=_known,
        ),
        PlanCurve: Table(
            keys={
                "curve": {
                    "event": "events",
                    "allocated_bytes": "allocated",
                    "reserved_bytes": "reserved",
                    "categories": "categories",
                }
            },
            before=_same_length,
        ),
    },
    strict=True,
    called="this prediction",
    hint=_HOW,
)
"""What is read of an estimate."""


def read_plan(path: Path | str, gpu: str | None = None) -> RunPlan:
    """Read a plan file, as ``memplan estimate`` wrote it; where it has several GPUs, that of the named profile.

    Raises:
        UsageError: It cannot be read, is something else, has no figures, or has several GPUs and none is named.
    """
    try:
        content = read_json(path)
    except UnreadableError as error:
        raise UsageError(f"the plan cannot be read: {error}", where=str(path), hint=_HOW) from error
    return parse_plan(content, gpu=gpu, where=str(path))


def parse_plan(content: Any, *, gpu: str | None = None, where: str = "plan") -> RunPlan:
    """Return the plan in what JSON holds; errors as ``read_plan``'s."""
    plain = of_command(content, "estimate", where, hint=_HOW)
    estimates = plain.get("estimates", [plain])
    if not isinstance(estimates, list) or not estimates:
        raise UsageError("'estimates' is no list of estimates", where=where, hint=_HOW)
    plan: RunPlan = ESTIMATED.read(of_gpu(estimates, gpu, where), where)
    return plan


def of_gpu(entries: list[Mapping[str, Any]], gpu: str | None, where: str, *, called: str = "plan") -> Mapping[str, Any]:
    """Return the entry of one GPU; None where there is a single entry.

    Raises:
        UsageError: There are several and none is named, or there is none of this name.
    """
    if gpu is None and len(entries) == 1:
        return entries[0]
    try:
        named = {str(entry["gpu"]["name"]): entry for entry in entries}
    except (KeyError, TypeError) as error:
        raise UsageError(f"what the {called} says of GPUs cannot be read: {error!r}", where=where) from None
    if gpu not in named:
        what = f"the {called} has no GPU '{gpu}'" if gpu else f"the {called} is of several GPUs"
        raise UsageError(what, where=where, hint=f"name one of {', '.join(sorted(named))}")
    return named[gpu]
