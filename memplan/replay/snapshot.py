"""Reads CUDA memory snapshots (``torch.cuda.memory._dump_snapshot``) into records, trusting nothing in the file."""

import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Never, get_args

from memplan.errors import UsageError
from memplan.replay.blocks import ADDRESS_BITS
from memplan.replay.records import BlockLayout, MemoryLayout, SegmentLayout
from memplan.replay.snapshot_records import Action, DeviceSnapshot, Snapshot, SnapshotEvent
from memplan.units import Bytes

_ACTIONS = frozenset(get_args(Action))
_STATES: Mapping[str, Literal["allocated", "pending", "free"]] = {
    "active_allocated": "allocated",
    "active_pending_free": "pending",
    "active_awaiting_free": "pending",  # what the documentation calls it
    "inactive": "free",
}
_UNREADABLE = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    MemoryError,
    ImportError,
    RecursionError,
)
"""What ``pickle`` raises on damaged or hostile bytes; its documentation says that the list is open."""


class _PlainUnpickler(pickle.Unpickler):
    """Builds dicts, lists, tuples and scalars only: a snapshot holds nothing else, an attack needs more."""

    def find_class(self, module: str, name: str, /) -> Never:
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no snapshot does")

    def persistent_load(self, pid: object, /) -> Never:
        raise pickle.UnpicklingError(f"it refers to {pid!r} outside the file")


def load_snapshot(path: Path) -> Snapshot:
    """Read a snapshot.

    Args:
        path: A pickle written by ``torch.cuda.memory._dump_snapshot``.

    Raises:
        UsageError: There is no such file, or it is damaged, hostile or something else.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            content = _PlainUnpickler(file).load()
    except OSError as error:
        raise UsageError(f"cannot read the snapshot: {error.strerror or error}", where=str(path)) from None
    except _UNREADABLE as error:
        raise _refusal(path, str(error) or type(error).__name__) from None
    try:
        return _snapshot(content, size)
    except _MalformedError as error:
        raise _refusal(path, str(error)) from None


def _refusal(path: Path, reason: str) -> UsageError:
    hint = "write one with torch.cuda.memory._dump_snapshot(path)"
    return UsageError(f"this is not a CUDA memory snapshot: {reason}", where=str(path), hint=hint)


class _MalformedError(Exception):
    """The pickle is sound, but no snapshot."""


def _snapshot(content: object, file_size: int) -> Snapshot:
    top = _typed(content, dict, "the file")
    segments = _list(top, "segments", "the file")
    traces = [_typed(trace, list, "a trace") for trace in _list(top, "device_traces", "the file")]
    blocks = sum(len(_list(_typed(segment, dict, "a segment"), "blocks", "a segment")) for segment in segments)
    if len(segments) + blocks + sum(map(len, traces)) > file_size:
        # Every entry takes a byte at least, unless one list is referred to again and again to exhaust memory.
        raise _MalformedError("it has more entries than bytes")
    by_device: dict[int, list[dict[str, Any]]] = {device: [] for device, trace in enumerate(traces) if trace}
    for segment in segments:
        by_device.setdefault(_int(segment, "device", "a segment"), []).append(segment)
    return Snapshot(
        devices=tuple(
            DeviceSnapshot(
                device=device,
                layout=_layout(by_device[device]),
                events=tuple(_events(traces[device])) if 0 <= device < len(traces) else (),
                block_frames={},
            )
            for device in sorted(by_device)
        ),
        settings=_typed(top.get("allocator_settings", {}), dict, "allocator_settings"),
    )


def _layout(segments: list[dict[str, Any]]) -> MemoryLayout:
    ordered = sorted((_segment(segment) for segment in segments), key=lambda segment: segment.address)
    return MemoryLayout(
        segments=tuple(ordered),
        requested=Bytes(sum(_int(segment, "requested_size", "a segment") for segment in segments)),
        allocated=Bytes(sum(_int(segment, "active_size", "a segment") for segment in segments)),
        reserved=Bytes(sum(segment.size for segment in ordered)),
    )


def _segment(fields: dict[str, Any]) -> SegmentLayout:
    address = _int(fields, "address", "a segment")
    return SegmentLayout(
        address=address,
        size=Bytes(_int(fields, "total_size", "a segment")),
        stream=_int(fields, "stream", "a segment"),
        small=fields.get("segment_type") == "small",
        blocks=tuple(_blocks(fields["blocks"], address)),
        expandable=fields.get("is_expandable") is True,
    )


def _blocks(blocks: list[object], address: int) -> Iterator[BlockLayout]:
    for block in blocks:
        fields = _typed(block, dict, "a block")
        state = _STATES.get(str(fields.get("state")))
        if state is None:
            raise _MalformedError(f"a block's state is {fields.get('state')!r:.40}")
        size = _int(fields, "size", "a block")
        # A free block still carries the size that was last asked of it. Old files have no such field at all.
        requested = _int(fields, "requested_size", "a block") if "requested_size" in fields else size
        yield BlockLayout(
            # Old files have no addresses either: blocks follow one another.
            address=_int(fields, "address", "a block") if "address" in fields else address,
            size=Bytes(size),
            requested=Bytes(0 if state == "free" else requested),
            state=state,
        )
        address += size


def _events(trace: list[object]) -> Iterator[SnapshotEvent]:
    for entry in trace:
        fields = _typed(entry, dict, "an event")
        action = fields.get("action")
        if isinstance(action, str) and action in _ACTIONS:
            yield SnapshotEvent(
                action,  # type: ignore[arg-type]  # one of the literals, by the line above
                _int(fields, "addr", "an event"),
                _int(fields, "size", "an event"),
                _int(fields, "stream", "an event"),
            )


def _typed(value: object, kind: type[Any], owner: str) -> Any:
    if not isinstance(value, kind):
        raise _MalformedError(f"{owner} is a {type(value).__name__}, not a {kind.__name__}")
    return value


def _list(fields: dict[str, Any], name: str, owner: str) -> list[Any]:
    if name not in fields:
        raise _MalformedError(f"{owner} has no '{name}'")
    found: list[Any] = _typed(fields[name], list, f"'{name}' of {owner}")
    return found


def _int(fields: dict[str, Any], name: str, owner: str) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value < 1 << ADDRESS_BITS:
        raise _MalformedError(f"'{name}' of {owner} is {value!r:.40}, not an address or size")
    return value
