"""Reads back what ``memplan.measure.document`` writes.

A minor version only adds keys: those that are not known are passed over, and a file of an older one may lack some. A
file of another major version is refused.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pydantic

from memplan.errors import UsageError
from memplan.lifetime.records import Category
from memplan.measure.document import SCHEMA_VERSION
from memplan.measure.records import Estimate

BREAKDOWN_ORDER = (*map(str, Category), "fragmentation", "context")
"""The order of reports; a file's keys are sorted."""
_NAMES = {
    "basis": "interval",
    "workload": "class",
    "own_runs": "class_runs",
    "steps_traced": "trace.steps",
    "repeats": "trace.repeats",
    "torch_version": "versions.torch",
    "memplan_version": "versions.memplan",
    "parameters": "model.parameters",
    "trainable_parameters": "model.trainable_parameters",
}
"""Field of a record → where the contract has it, for errors."""


def read_estimate(content: object, where: str | None = None) -> Estimate:
    """Read one estimate.

    Args:
        content: What JSON holds of it.
        where: The file, for errors.

    Returns:
        The estimate that was written; of an UNKNOWN one, which carries no figures, with zeros in their place.

    Raises:
        UsageError: It is none, of another major version, or broken; names every place that is.
    """
    found = checked_version(content, where)
    if found.get("command") != "estimate":
        raise UsageError(f"no estimate, but {found.get('command')!r}", where=where)
    estimate: Estimate = validated(Estimate, lambda: _fields(found), where)
    return estimate


def checked_version(content: object, where: str | None) -> Mapping[str, Any]:
    """The content of a file of memplan's, if it is one that is read here.

    Raises:
        UsageError: It is no such file, or of another major version.
    """
    version = content.get("schema_version") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(version, str):
        raise UsageError("this is no result of memplan: it has no schema_version", where=where)
    if version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        what = f"schema_version {version} is not read here, {SCHEMA_VERSION} is"
        raise UsageError(what, where=where, hint="update memplan, or make the file anew with this one")
    return content


def validated(kind: type[Any], fields: Callable[[], Any], where: str | None) -> Any:
    """A record of its fields, as pydantic checks them.

    Args:
        kind: The record's class.
        fields: Makes them; what it raises because the content has another shape counts as broken too.
        where: The file, for errors.

    Raises:
        UsageError: Something is missing or of the wrong kind.
    """
    try:
        return _adapter(kind).validate_python(fields())
    except pydantic.ValidationError as error:
        problems = [f"{_place(each['loc'])}: {each['msg'].lower()}" for each in error.errors()]
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        problems = [f"its parts are not what they should be ({error})"]
    left = len(problems) - _PROBLEMS_SHOWN
    shown = [*problems[:_PROBLEMS_SHOWN], *([f"and {left} more"] if left > 0 else [])]
    raise UsageError("this result cannot be read:" + "".join(f"\n    {each}" for each in shown), where=where) from None


_PROBLEMS_SHOWN = 8


_ADAPTERS: dict[type[Any], pydantic.TypeAdapter[Any]] = {}
"""Made once for each record: that takes longer than reading one."""


def _adapter(kind: type[Any]) -> pydantic.TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = pydantic.TypeAdapter(kind)
    return _ADAPTERS[kind]


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(_NAMES.get(str(part), str(part)) for part in location)


def _fields(content: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the record out of the contract's nesting."""
    model, trace, versions = (content.get(part, {}) for part in ("model", "trace", "versions"))
    return dict(content) | {
        "parameters": model.get("parameters"),
        "trainable_parameters": model.get("trainable_parameters"),
        "steps_traced": trace.get("steps"),
        "repeats": trace.get("repeats"),
        "torch_version": versions.get("torch"),
        "memplan_version": versions.get("memplan"),
        **(_no_figures() if content.get("verdict") == "unknown" else _figures(content)),
    }


def _figures(content: Mapping[str, Any]) -> dict[str, Any]:
    peak, parts = content["peak"], content["breakdown"]
    known = {name: parts[name] for name in BREAKDOWN_ORDER if name in parts}
    return {"peak": peak | {"basis": _basis(peak.get("interval"))}, "breakdown": known | parts}


def _basis(interval: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    names = {"workload": interval["class"], "own_runs": interval["class_runs"], "figure": interval["figure"] or ""}
    return dict(interval) | names


def _no_figures() -> dict[str, Any]:
    sizes = ("requested", "allocated", "reserved", "device", "low", "high")
    peak: dict[str, Any] = dict.fromkeys((f"{size}_bytes" for size in sizes), 0)
    return {
        "peak": peak | {"phase": "setup", "op": "", "module": "", "source": ""},
        "breakdown": dict.fromkeys(BREAKDOWN_ORDER, 0),
        "fragmentation": {"external": 0.0, "internal": 0.0},
    }
