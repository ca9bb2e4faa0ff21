"""Checks one profile table (parsed TOML) and makes the record, reporting every fault at once.

Written by hand rather than with pydantic: importing pydantic alone takes longer than reading every profile.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from math import isfinite
from typing import Any, get_args

from memplan.errors import UsageError
from memplan.hardware.profile import GpuProfile, Kind
from memplan.units import parse_size

DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4")
"""The dtype names that ``peak_flops`` may hold."""


def make_profile(table: Mapping[str, Any], *, name: str, where: str) -> GpuProfile:
    """Check a profile table and make the record; sizes are bytes, or text such as ``"79.18GiB"``.

    Raises:
        UsageError: The table has unknown, missing or wrong keys; all of them are named.
    """
    values, faults = _read(table)
    faults += [f"{key}: missing" for key in sorted(_REQUIRED - table.keys())]
    faults += [] if faults else list(_contradictions(values))
    if faults:
        raise UsageError(
            f"GPU profile '{name}' is not valid:" + "".join(f"\n    {fault}" for fault in faults),
            where=where,
            hint="docs/hardware.md describes every key of a profile",
        )
    return GpuProfile(name=name, **values)


def _read(table: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    values: dict[str, Any] = {}
    faults = []
    for key, value in table.items():
        try:
            values[key] = _reader(key)(value)
        except (ValueError, OverflowError) as error:
            faults.append(f"{key}: {error}")
    return values, faults


def _reader(key: str) -> Callable[[object], object]:
    if key not in _READERS:
        near = difflib.get_close_matches(key, _READERS, n=1)
        raise ValueError("unknown key" + (f"; did you mean {near[0]}?" if near else ""))
    return _READERS[key]


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected text, found {value!r}")
    return value


def _kind(value: object) -> str:
    if value not in get_args(Kind):
        raise ValueError(f"expected one of {', '.join(get_args(Kind))}, found {value!r}")
    return str(value)


def _count(value: object) -> int:
    # bool is an int to Python, but ``sm_count = true`` is a slip.
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"expected a whole number of at least 0, found {value!r}")
    return value


def _size(value: object) -> int:
    return parse_size(value) if isinstance(value, str) else _count(value)


def rate(value: object) -> float:
    """Read a number of at least 0.

    Raises:
        ValueError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        raise ValueError(f"expected a number of at least 0, found {value!r}")
    return float(value)


def _capability(value: object) -> tuple[int, int]:
    match value:
        case [int(major), int(minor)] if not isinstance(major, bool) and min(major, minor) >= 0:
            return major, minor
    raise ValueError(f"expected [major, minor], found {value!r}")


def _names(value: object) -> tuple[str, ...]:
    match value:
        case [*names]:
            return tuple(_text(name) for name in names)
        case _:
            raise ValueError(f"expected a list of names, found {value!r}")


def _flops(value: object) -> dict[str, float]:
    table = _table(value)
    unknown = sorted(table.keys() - set(DTYPES))
    if unknown:
        raise ValueError(f"unknown dtype {', '.join(unknown)}; known: {', '.join(DTYPES)}")
    return {dtype: rate(each) for dtype, each in table.items()}


def _sources(value: object) -> dict[str, str]:
    table = _table(value)
    unknown = sorted(table.keys() - _READERS.keys())
    if unknown:
        raise ValueError(f"source for an unknown key {', '.join(unknown)}")
    return {key: _text(source) for key, source in table.items()}


def _table(value: object) -> dict[str, object]:
    match value:
        case dict():
            return value
        case _:
            raise ValueError(f"expected a table, found {value!r}")


_OF_TYPE: Mapping[Any, Callable[[object], object]] = {
    str: _text,
    Kind: _kind,
    int: _count,
    float: rate,
    tuple[int, int] | None: _capability,
    tuple[str, ...]: _names,
    Mapping[str, float]: _flops,
    Mapping[str, str]: _sources,
}
_FIELDS = [field for field in fields(GpuProfile) if field.name != "name"]
_READERS = {each.name: _size if each.name.endswith("_bytes") else _OF_TYPE[each.type] for each in _FIELDS}
_REQUIRED = {each.name for each in _FIELDS if each.default is MISSING and each.default_factory is MISSING}


def _contradictions(values: Mapping[str, Any]) -> Iterator[str]:
    """Keys that are well formed one by one but cannot hold together."""
    if values["kind"] == "cpu":
        return
    if values["total_bytes"] == 0:
        yield "total_bytes: 0 means no fixed limit, which only kind 'cpu' may have"
    if values["usable_bytes"] > values["total_bytes"]:
        yield "usable_bytes: more than total_bytes"
    if values["context_bytes"] > values["usable_bytes"]:
        yield "context_bytes: more than usable_bytes"
    low, high = values.get("context_low_bytes", 0), values.get("context_high_bytes", 0)
    if low > values["context_bytes"] or (high and high < values["context_bytes"]):
        yield "context_bytes: outside context_low_bytes to context_high_bytes"
    if 2 * (values.get("cublas_handle_bytes", 0) + values.get("cudnn_handle_bytes", 0)) > values["context_bytes"]:
        yield "context_bytes: less than the handles of two threads"
    if values["kind"] == "cuda" and values.get("compute_capability") is None:
        yield "compute_capability: missing, and kind 'cuda' needs it"
