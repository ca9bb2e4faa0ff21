"""A recording as JSON (schema ``profile-1.0``) and back. Torch-free; long lists are columns."""

import json
from array import array
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_type_hints

from memplan.errors import UsageError
from memplan.runtime.profile.records import Border, Events, Overhead, Recording, Region, Sample

SCHEMA_VERSION = "1.0"
_PLAIN = (
    "name", "depth", "device", "source", "began", "seconds", "start_bytes", "end_bytes", "peak_bytes",
)  # fmt: skip
_EVENTS = {"nanoseconds": "nanoseconds", "address": "addresses", "bytes": "sizes", "thread": "threads"}
"""Name of a column in the file and in ``Events``."""


def render(recording: Recording) -> str:
    """The recording as one object on one line."""
    return json.dumps(document(recording), sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n"


def document(recording: Recording) -> dict[str, Any]:
    """The recording as plain data."""
    events = recording.events
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "profile",
        **{name: getattr(recording, name) for name in _PLAIN},
        "regions": [region._asdict() | {"path": list(region.path)} for region in recording.regions],
        "steps": list(recording.steps),
        "samples": _columns(Sample._fields, recording.samples),
        "events": None
        if events is None
        else {name: getattr(events, column).tolist() for name, column in _EVENTS.items()} | {"dropped": events.dropped},
        "borders": _columns(Border._fields, recording.borders),
        "overhead": {name: getattr(recording.overhead, name) for name in Overhead.__slots__},
        "notes": list(recording.notes),
        "versions": dict(recording.versions),
    }


def read(content: Mapping[str, Any], where: str) -> Recording:
    """A recording from plain data.

    Args:
        content: What ``document`` makes; a later minor version may have added to it.
        where: The file, for errors.

    Raises:
        UsageError: It is none.
    """
    version = str(content.get("schema_version", ""))
    if content.get("command") != "profile" or version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        raise UsageError(
            f"this is no recording of schema {SCHEMA_VERSION}", where=where, hint="Recording.save makes one"
        )
    try:
        return _recording(content)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsageError(f"this is no recording that memplan wrote: {error!r}", where=where) from error


def _recording(content: Mapping[str, Any]) -> Recording:
    events = content["events"]
    parts: dict[str, Any] = {name: content[name] for name in (*_PLAIN, "steps", "notes", "versions")} | {
        "regions": [{name: each[name] for name in Region._fields} for each in content["regions"]],
        "samples": _rows(content["samples"], Sample._fields),
        "borders": _rows(content["borders"], Border._fields),
        "overhead": {name: content["overhead"][name] for name in Overhead.__slots__},
    }
    found = {name: _kinds()[name].validate_python(value) for name, value in parts.items()}
    return Recording(**found, events=None if events is None else _events(events))


@cache
def _kinds() -> Mapping[str, Any]:
    """What each part must be, as the record says; columns of events are arrays, which tell by themselves."""
    import pydantic

    hints = get_type_hints(Recording)
    return {name: pydantic.TypeAdapter(hint) for name, hint in hints.items() if name != "events"}


def _events(plain: Mapping[str, Any]) -> Events:
    found = {column: array("q", plain[name]) for name, column in _EVENTS.items()}
    if len({len(column) for column in found.values()}) > 1:
        raise ValueError("columns of events differ in length")
    return Events(**found, dropped=plain["dropped"])


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}


def _rows(columns: Mapping[str, Sequence[Any]], names: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(columns[name] for name in names), strict=True))
