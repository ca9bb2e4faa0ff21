"""A history as figures over time: what was there before it, and the bytes after every event."""

from collections.abc import Iterator
from typing import NamedTuple

from memplan.snapshot.recorded_frames import Stack
from memplan.snapshot.records import DeviceSnapshot, SnapshotEvent

_GROWS = frozenset({"segment_alloc", "segment_map"})
_SHRINKS = frozenset({"segment_free", "segment_unmap"})


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
