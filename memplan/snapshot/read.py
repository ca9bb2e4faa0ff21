"""Reads CUDA memory snapshots (``torch.cuda.memory._dump_snapshot``) into records, trusting nothing in the file."""

import gc
import io
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Never, get_args

from memplan.errors import UsageError
from memplan.files.read import MissingError, TooLargeError, UnreadableError, read_bytes
from memplan.replay.records import BlockLayout, MemoryLayout, SegmentLayout
from memplan.snapshot.fields import (
    MalformedSnapshotError,
    Stacks,
    described,
    integer,
    items,
    legacy_block,
    pool_of,
    time_of,
    typed,
)
from memplan.snapshot.pickle_scan import objection
from memplan.snapshot.records import Action, DeviceSnapshot, Frame, Snapshot, SnapshotEvent
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
    """Builds dicts, lists, tuples and scalars only, should the scan of the opcodes have missed anything."""

    def find_class(self, module: str, name: str, /) -> Never:
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no snapshot does")

    def persistent_load(self, pid: object, /) -> Never:
        raise pickle.UnpicklingError(f"it refers to {described(pid)} outside the file")


MOST = 1 << 30
"""Bytes of a snapshot. One of 100 MB, a million events with their stacks, takes about a GiB of memory to read."""
_WRITE_ONE = "write one with torch.cuda.memory._dump_snapshot(path)"
_RAISE = "memplan snapshot --max-size allows more; reading takes about ten times the file in memory"


def load_snapshot(path: Path, most: int = MOST) -> Snapshot:
    """Read a snapshot.

    Args:
        path: A pickle written by ``torch.cuda.memory._dump_snapshot``, or a pipe that one comes through.
        most: Bytes that it may have.

    Returns:
        Its devices; fields that old versions did not write are empty.

    Raises:
        UsageError: There is no such file, or it is damaged, hostile or something else.
    """
    try:
        data = read_bytes(path, most)
    except MissingError:
        raise UsageError(f"there is no file '{path}'", hint=_WRITE_ONE) from None
    except TooLargeError as error:
        raise UsageError(f"cannot read the snapshot: {error}", where=str(path), hint=_RAISE) from None
    except UnreadableError as error:
        raise UsageError(f"cannot read the snapshot: {error}", where=str(path)) from None
    with _without_collector():
        try:
            return _snapshot(_unpickled(data), len(data))
        except MalformedSnapshotError as error:
            what = f"this is not a CUDA memory snapshot: {error}"
            raise UsageError(what, where=str(path), hint=_WRITE_ONE) from None


@contextmanager
def _without_collector() -> Iterator[None]:
    """A pickle's millions of objects are all alive: looking through them for garbage doubles the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _unpickled(data: bytes) -> object:
    if reason := objection(data):
        raise MalformedSnapshotError(reason)
    try:
        # The buffer's read-ahead matters: without it, files in old protocols load several times slower.
        return _PlainUnpickler(io.BufferedReader(io.BytesIO(data))).load()
    except _UNREADABLE as error:
        raise MalformedSnapshotError(str(error) or type(error).__name__) from None


def _snapshot(content: object, file_size: int) -> Snapshot:
    # ``torch.cuda.memory_snapshot()`` is the list of segments alone.
    top: dict[str, Any] = {"segments": content} if isinstance(content, list) else typed(content, dict, "the file")
    segments = [typed(segment, dict, "a segment") for segment in items(top, "segments", "the file")]
    traces = [typed(trace, list, "a trace") for trace in items(top, "device_traces", "the file", optional=True)]
    blocks = sum(len(items(segment, "blocks", "a segment")) for segment in segments)
    if len(segments) + blocks + sum(map(len, traces)) > file_size:
        # Every entry takes a byte at least, unless one list is referred to again and again to exhaust memory.
        raise MalformedSnapshotError("it has more entries than bytes")
    by_device: dict[int, list[dict[str, Any]]] = {device: [] for device, trace in enumerate(traces) if trace}
    for segment in segments:
        by_device.setdefault(integer(segment, "device", "a segment"), []).append(segment)
    stacks = Stacks(file_size)
    return Snapshot(
        devices=tuple(
            _device(device, by_device[device], traces[device] if device < len(traces) else [], stacks)
            for device in sorted(by_device)
        ),
        settings=typed(top.get("allocator_settings", {}), dict, "allocator_settings"),
    )


def _device(device: int, segments: list[dict[str, Any]], trace: list[object], stacks: Stacks) -> DeviceSnapshot:
    frames: dict[int, tuple[Frame, ...]] = {}
    layouts = sorted((_segment(segment, stacks, frames) for segment in segments), key=lambda segment: segment.address)
    live = [block for segment in layouts for block in segment.blocks if block.state != "free"]
    return DeviceSnapshot(
        device=device,
        layout=MemoryLayout(
            segments=tuple(layouts),
            requested=_total(segments, "requested_size", sum(block.requested for block in live)),
            allocated=_total(segments, "active_size", sum(block.size for block in live)),
            reserved=Bytes(sum(segment.size for segment in layouts)),
        ),
        events=tuple(_events(trace, stacks)),
        block_frames=frames,
    )


def _total(segments: list[dict[str, Any]], name: str, otherwise: int) -> Bytes:
    """What PyTorch added up, or what is found where old versions wrote no total."""
    if any(name not in segment for segment in segments):
        return Bytes(otherwise)
    return Bytes(sum(integer(segment, name, "a segment") for segment in segments))


def _segment(fields: dict[str, Any], stacks: Stacks, frames: dict[int, tuple[Frame, ...]]) -> SegmentLayout:
    address = integer(fields, "address", "a segment")
    return SegmentLayout(
        address=address,
        size=Bytes(integer(fields, "total_size", "a segment")),
        stream=integer(fields, "stream", "a segment"),
        small=fields.get("segment_type") == "small",
        blocks=tuple(_blocks(fields["blocks"], address, stacks, frames)),
        expandable=fields.get("is_expandable") is True,
        pool=pool_of(fields, "segment_pool_id"),
    )


def _blocks(
    blocks: list[object], address: int, stacks: Stacks, frames: dict[int, tuple[Frame, ...]]
) -> Iterator[BlockLayout]:
    for entry in blocks:
        fields = legacy_block(typed(entry, dict, "a block"))
        written = fields.get("state")
        state = _STATES.get(written) if isinstance(written, str) else None
        if state is None:
            raise MalformedSnapshotError(f"a block's state is {described(written)}")
        size = integer(fields, "size", "a block")
        # A free block still carries the size that was last asked of it. Old files have no such field at all.
        requested = integer(fields, "requested_size", "a block") if "requested_size" in fields else size
        # Old files have no addresses either: blocks follow one another.
        start = integer(fields, "address", "a block") if "address" in fields else address
        stack = stacks.of(fields, "a block")
        if stack and state != "free":
            frames[start] = stack
        yield BlockLayout(
            address=start, size=Bytes(size), requested=Bytes(0 if state == "free" else requested), state=state
        )
        address += size


def _events(trace: list[object], stacks: Stacks) -> Iterator[SnapshotEvent]:
    for entry in trace:
        fields = typed(entry, dict, "an event")
        action = fields.get("action")
        if isinstance(action, str) and action in _ACTIONS:
            # For an ``oom`` the place of the address is taken by what the device had left.
            place = "device_free" if action == "oom" and "device_free" in fields else "addr"
            yield SnapshotEvent(
                action,  # type: ignore[arg-type]  # one of the literals, by the line above
                integer(fields, place, "an event"),
                integer(fields, "size", "an event"),
                integer(fields, "stream", "an event"),
                stacks.of(fields, "an event"),
                time_of(fields),
                pool_of(fields, "pool_id"),
            )
