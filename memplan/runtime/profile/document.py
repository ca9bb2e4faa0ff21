"""A recording as JSON (schema ``profile-1.0``) and back. Torch-free; long lists are columns."""

import json
from collections.abc import Mapping
from typing import Any

from memplan.contract.document import Document, head, of_command
from memplan.contract.table import Table, columns
from memplan.runtime.profile.records import Events, Recording

_COLUMNS = {"nanoseconds": "nanoseconds", "address": "addresses", "bytes": "sizes", "thread": "threads"}
"""Name of a column in the file and in ``Events``."""


def _same_length(content: Any) -> Any:
    if isinstance(content, dict) and len({len(content.get(name, ())) for name in _COLUMNS}) > 1:
        raise ValueError("columns of events differ in length")
    return content


DOCUMENT = Document(
    name="profile",
    root=Recording,
    tables={
        Recording: Table(
            keys={**head("profile"), "samples": columns("samples"), "borders": columns("borders")},
        ),
        Events: Table(keys=_COLUMNS, before=_same_length),
    },
)


def render(recording: Recording) -> str:
    """Render the recording as one object on one line."""
    return json.dumps(DOCUMENT.plain(recording), sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n"


def read(content: Mapping[str, Any], where: str) -> Recording:
    """Read a recording from plain data.

    Args:
        content: What JSON holds; a later minor version may have added to it.
        where: The file, for errors.

    Raises:
        UsageError: It is none.
    """
    recording: Recording = DOCUMENT.read(of_command(content, "profile", where), where)
    return recording
