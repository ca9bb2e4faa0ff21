"""A history over time: what was there before it, the bytes after every event, and call stacks for flame charts."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from memplan.snapshot.frames import place_of
from memplan.snapshot.recorded_frames import CATEGORY, MODULE, OP, PHASE, TENSOR, Stack
from memplan.snapshot.records import DeviceSnapshot, Frame, SnapshotEvent

_GROWS = frozenset({"segment_alloc", "segment_map"})
_SHRINKS = frozenset({"segment_free", "segment_unmap"})
_RECORDED: Final = frozenset({CATEGORY, MODULE, OP, PHASE, TENSOR})


class Totals(NamedTuple):
    """Totals after one event."""

    event: SnapshotEvent
    """What happened."""
    requested: int
    """Bytes asked for and alive."""
    reserved: int
    """Bytes in segments."""
    allocated_by: Stack | None
    """For ``alloc`` and ``free_completed``: the stack that allocated the block; None if that was before the history."""


class Allocation(NamedTuple):
    """Bytes alive, and who asked for them."""

    nbytes: int
    """Requested."""
    frames: Stack
    """Call stack, innermost first; empty if it was not recorded."""
    begin: int
    """Index of the event that made it; -1 if it was there before."""
    end: int
    """Index of the event that completed its free; the number of events if it outlives the history."""


def moments(device: DeviceSnapshot) -> Iterator[Totals]:
    """Totals after every event, from the state before the first one, which follows from that after the last."""
    total = device.layout.requested - sum(map(_requested_change, device.events))
    held = device.layout.reserved - sum(map(_reserved_change, device.events))
    alive: dict[int, Stack] = {}
    for event in device.events:
        total += _requested_change(event)
        held += _reserved_change(event)
        stack = None
        if event.action == "alloc":
            stack = alive[event.address] = event.frames
        elif event.action == "free_completed":
            stack = alive.pop(event.address, None)
        yield Totals(event, total, held, stack)


def allocations(device: DeviceSnapshot) -> list[Allocation]:
    """Every allocation that the history or the final state tells of, in order of birth."""
    found: list[Allocation] = []
    alive: dict[int, tuple[int, SnapshotEvent]] = {}
    for index, event in enumerate(device.events):
        if event.action == "alloc":
            alive[event.address] = index, event
        elif event.action == "free_completed":
            begin, birth = alive.pop(event.address, (-1, None))
            found.append(Allocation(event.nbytes, birth.frames if birth else (), begin, index))
    end = len(device.events)
    found += [Allocation(event.nbytes, event.frames, begin, end) for begin, event in alive.values()]
    found += [
        Allocation(block.requested, device.block_frames.get(block.address, ()), -1, end)
        for segment in device.layout.segments
        for block in segment.blocks
        if block.state != "free" and block.address not in alive
    ]
    return sorted(found, key=lambda allocation: (allocation.begin, allocation.end))


def _requested_change(event: SnapshotEvent) -> int:
    return {"alloc": event.nbytes, "free_completed": -event.nbytes}.get(event.action, 0)


def _reserved_change(event: SnapshotEvent) -> int:
    if event.action in _GROWS:
        return event.nbytes
    return -event.nbytes if event.action in _SHRINKS else 0


class StackReader:
    """Reads each distinct stack once, with or without a recorded allocation's category as the outermost level."""

    def __init__(self, *, categories: bool) -> None:
        self._categories = categories
        self._read: dict[Stack, tuple[Frame, ...]] = {}

    def read(self, stack: Stack) -> tuple[Frame, ...]:
        """The levels to show, outermost first; empty where nothing was recorded."""
        shown = self._read.get(stack)
        if shown is None:
            kept = stack if self._categories else [frame for frame in stack if frame.file != CATEGORY]
            shown = self._read[stack] = tuple(_legible(kept))[::-1]
        return shown


def label(frame: Frame) -> str:
    """``layers.3.mlp`` for a recorded level, ``forward (model.py:41)`` for a real one."""
    if frame.file in _RECORDED:
        return frame.function
    name = frame.file.replace("\\", "/").rpartition("/")[2]
    return f"{frame.function} ({name}:{frame.line})" if frame.line else frame.function


def _legible(stack: Sequence[Frame]) -> Sequence[Frame]:
    """Python levels and recorded ones; for a stack that has none (the backward pass, in C++) what it is a step of."""
    chosen = [frame for frame in stack if frame.file in _RECORDED or _is_python(frame.file)]
    place = place_of(stack)
    return chosen if chosen or not place.name else [Frame(place.file, place.line, place.name)]


def _is_python(file: str) -> bool:
    return file.endswith(".py") or file.startswith("<")
