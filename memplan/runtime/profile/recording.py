"""A recording, and its JSON (schema ``profile-1.0``): long lists are columns. Torch-free."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memplan.contract.document import Document, head, of_command
from memplan.contract.table import Table, columns
from memplan.files.write import write_whole
from memplan.runtime.profile.records import Border, Depth, Events, Overhead, Region, Sample, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What was recorded between the begin and the end of ``memplan.profile(..., depth=...)``."""

    name: str
    """As the outermost region is called."""
    depth: Depth
    """How closely it looked."""
    device: str
    """``cpu`` or ``cuda:0``."""
    source: Source
    """Who counted."""
    began: float
    """Seconds since the epoch."""
    seconds: float
    """Wall time."""
    start_bytes: int
    """Alive in the beginning, as far as it had been counted; the CPU's counters know only what came after them."""
    end_bytes: int
    """Alive in the end."""
    peak_bytes: int
    """Most alive at once."""
    regions: tuple[Region, ...]
    """All that were entered, each behind the one around it."""
    steps: tuple[int, ...] = ()
    """When each step began, in nanoseconds; what precedes the first is set-up."""
    samples: tuple[Sample, ...] = ()
    """The curve over time (depths ``sampled`` and ``full``)."""
    events: Events | None = None
    """Every allocation and free (depth ``full``)."""
    borders: tuple[Border, ...] = ()
    """When regions began and ended, by which events find theirs (depth ``full``)."""
    overhead: Overhead
    """What recording took."""
    notes: tuple[str, ...] = ()
    """What could not be seen, each a sentence."""
    versions: Mapping[str, str]
    """``memplan`` and ``torch``."""

    def save(self, path: str | Path) -> Path:
        """Write the recording as JSON (schema ``profile-1.0``), whole or not at all; ``memplan report`` shows it.

        Raises:
            OSError: It cannot be written.
        """
        write_whole(Path(path), render(self).encode("utf-8"))
        return Path(path)


_COLUMNS = {"nanoseconds": "nanoseconds", "address": "addresses", "bytes": "sizes", "thread": "threads"}
"""Name of a column in the file and in ``Events``."""


def _same_length(content: Any) -> Any:
    columns = [content.get(name, []) for name in _COLUMNS] if isinstance(content, dict) else []
    # What is no list is refused as such afterwards.
    if len({len(column) for column in columns if isinstance(column, list)}) > 1:
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
    """Read a recording from plain data, to which a later minor version may have added.

    Raises:
        UsageError: It is none.
    """
    recording: Recording = DOCUMENT.read(of_command(content, "profile", where), where)
    return recording
