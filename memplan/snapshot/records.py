"""What a memory snapshot says: an allocator's state, and the history that led there.

The same records hold what a GPU wrote down (``memplan.snapshot.read`` reads it) and what memplan predicts
(``memplan.snapshot.recording`` makes it), so that every report and export serves both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from memplan.replay.records import MemoryLayout

Action = Literal[
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
]
"""What happens in a history; ``snapshot`` and annotations are dropped."""


class Frame(NamedTuple):
    """One level of the call stack that asked for memory."""

    file: str
    """Path as written; ``??`` for C++."""
    line: int
    """Line number; 0 where there is none."""
    function: str
    """Name of the function, or the C++ symbol."""


class SnapshotEvent(NamedTuple):
    """One line of an allocator's history."""

    action: Action
    """What happened."""
    address: int
    """Of the block or segment; for ``oom`` the device's free bytes, as PyTorch writes it."""
    nbytes: int
    """Requested bytes for ``alloc`` and frees, those rounded for ``oom``; segment or mapped bytes for the others."""
    stream: int
    """CUDA stream."""
    frames: tuple[Frame, ...] = ()
    """Call stack, innermost first; empty where none was recorded. Equal stacks are one object."""
    microseconds: int = 0
    """Wall-clock time since some epoch; 0 where none was recorded."""
    pool: int = 0
    """Private pool, by the number that its segments have; 0 for the default one, and in files too old to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSnapshot:
    """One device's state at the moment of the snapshot, and what led there as far as it was recorded."""

    device: int
    """Index of the device."""
    layout: MemoryLayout
    """Segments and blocks, with the totals that PyTorch wrote beside them."""
    events: tuple[SnapshotEvent, ...]
    """History, oldest first; often only the last part of it."""
    block_frames: Mapping[int, tuple[Frame, ...]]
    """Address of a live block → call stack that allocated it, innermost first; only those recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot file."""

    devices: tuple[DeviceSnapshot, ...]
    """Devices with segments or events, by index."""
    settings: Mapping[str, object]
    """``allocator_settings`` as written; empty in old files."""
