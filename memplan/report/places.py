"""Places in a program as a reader names them."""

import re

from memplan.report.draw.layout import source_line
from memplan.snapshot.frames import CodePlace, PlaceKind

_NAMES = {PlaceKind.BEFORE: "allocated before the recording", PlaceKind.UNKNOWN: "without a call stack"}
_SOURCES = {PlaceKind.BACKWARD: "backward pass", PlaceKind.OP: "called from C++"}
_MODULE_LEVEL = {"<module>": "top level"}


def name_of(place: CodePlace) -> str:
    """Function, backward step or op."""
    if place.kind is PlaceKind.OP:
        return f"aten::{place.name}"
    return _NAMES.get(place.kind) or _MODULE_LEVEL.get(place.name, place.name)


def source_of(place: CodePlace) -> str:
    """File and line: from the package on for a library's, the last two parts of the path for the user's own."""
    if not place.file:
        return _SOURCES.get(place.kind, "")
    path = place.file
    short = source_line(path) if place.kind is PlaceKind.LIBRARY else "/".join(re.split(r"[\\/]+", path)[-2:])
    return f"{short}:{place.line}"
