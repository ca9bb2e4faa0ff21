"""Reads a prediction out of what ``memplan estimate -f json=FILE`` wrote. Torch-free, and free of the estimator."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memplan.errors import UsageError
from memplan.files.documents import read_json
from memplan.files.read import UnreadableError
from memplan.runtime.monitor.records import Plan, PlanCurve

_HOW = "make one with `memplan estimate TARGET --gpu NAME -f json=FILE` (--timeline adds the curve)"
_MAJOR = "1"


def read_plan(path: Path | str, gpu: str | None = None) -> Plan:
    """Read a plan file.

    Args:
        path: What ``memplan estimate`` wrote.
        gpu: Name of the profile, where the file has several.

    Raises:
        UsageError: It cannot be read, is something else, has no figures, or has several GPUs and none is named.
    """
    try:
        content = read_json(path)
    except UnreadableError as error:
        raise UsageError(f"the plan cannot be read: {error}", where=str(path), hint=_HOW) from error
    return parse_plan(content, gpu=gpu, where=str(path))


def parse_plan(content: Any, *, gpu: str | None = None, where: str = "plan") -> Plan:
    """A plan out of what JSON holds; errors as ``read_plan``'s."""
    estimate = _of_gpu(_estimates(content, where), gpu, where)
    if estimate.get("verdict") == "unknown" or estimate.get("peak") is None:
        raise UsageError("this prediction is UNKNOWN: there is nothing to compare with", where=where)
    try:
        return _plan(estimate)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"this is no estimate that memplan wrote: {error!r}", where=where, hint=_HOW) from error


def _estimates(content: Any, where: str) -> Sequence[Mapping[str, Any]]:
    if not isinstance(content, Mapping) or content.get("command") != "estimate":
        raise UsageError("this is no report of `memplan estimate`", where=where, hint=_HOW)
    version = str(content.get("schema_version", ""))
    if version.partition(".")[0] != _MAJOR:
        raise UsageError(f"schema_version {version!r} is not read here, 1.x is; update memplan", where=where)
    estimates = content.get("estimates", [content])
    if not isinstance(estimates, list) or not all(isinstance(each, Mapping) for each in estimates) or not estimates:
        raise UsageError("'estimates' is no list of estimates", where=where, hint=_HOW)
    return estimates


def _of_gpu(estimates: Sequence[Mapping[str, Any]], gpu: str | None, where: str) -> Mapping[str, Any]:
    if gpu is None and len(estimates) == 1:
        return estimates[0]
    named = {str((each.get("gpu") or {}).get("name")): each for each in estimates}
    if gpu not in named:
        what = f"the plan has no GPU '{gpu}'" if gpu else "the plan is of several GPUs"
        raise UsageError(what, where=where, hint=f"name one of {', '.join(sorted(named))}")
    return named[gpu]


def _plan(estimate: Mapping[str, Any]) -> Plan:
    gpu, peak = estimate["gpu"], estimate["peak"]
    timeline = estimate.get("timeline")
    return Plan(
        target=str(estimate["target"]),
        gpu=str(gpu["name"]),
        verdict=str(estimate["verdict"]),
        total=_bytes(gpu["total_bytes"]),
        usable=_bytes(gpu["usable_bytes"]),
        allocated=_bytes(peak["allocated_bytes"]),
        reserved=_bytes(peak["reserved_bytes"]),
        device=_bytes(peak["device_bytes"]),
        low=_bytes(peak["low_bytes"]),
        high=_bytes(peak["high_bytes"]),
        phase=str(peak["phase"]),
        module=str(peak["module"]),
        breakdown={str(category): _bytes(size) for category, size in estimate["breakdown"].items()},
        curve=None if timeline is None else _curve(timeline),
    )


def _curve(timeline: Mapping[str, Any]) -> PlanCurve:
    curve = timeline["curve"]
    columns = [_column(curve[name]) for name in ("event", "allocated_bytes", "reserved_bytes")]
    categories = {str(name): _column(held) for name, held in curve["categories"].items()}
    if len({len(column) for column in (*columns, *categories.values())}) > 1:
        raise ValueError("the timeline's columns differ in length")
    return PlanCurve(
        events=columns[0],
        allocated=columns[1],
        reserved=columns[2],
        categories=categories,
        phases=tuple((str(span["phase"]), int(span["start"]), int(span["end"])) for span in timeline["phases"]),
    )


def _column(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(_bytes(value) for value in values)


def _bytes(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no number of bytes")
    return value
