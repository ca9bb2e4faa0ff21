"""A memory history as the pickle of ``torch.cuda.memory._dump_snapshot``: PyTorch's own viewer opens it.

What that viewer (``torch/utils/viz/MemoryViz.js``) insists on: pickle protocol 2 to 4, plain containers and scalars,
integers that JavaScript can hold, blocks that tile their segment, and frames with all three of their fields. It colours
allocations by ``category`` if any event has one, but fails unless one event's category is ``unknown``.
"""

import pickle
from collections.abc import Iterator
from typing import Any, Final

from memplan.replay.records import BlockLayout
from memplan.snapshot.fields import pool_pair
from memplan.snapshot.recorded_frames import Stack, category_of
from memplan.snapshot.records import DeviceSnapshot, Frame, Snapshot, SnapshotEvent

PROTOCOL: Final = 4
"""The newest pickle protocol that the viewer reads; Python's default is newer."""
_STATES: Final = {"allocated": "active_allocated", "pending": "active_pending_free", "free": "inactive"}


def render(snapshot: Snapshot) -> bytes:
    """Write a real snapshot, or a recording, as the bytes of a snapshot file."""
    frames = _SharedFrames()
    traces: list[list[dict[str, Any]]] = [[] for _ in range(1 + max((d.device for d in snapshot.devices), default=0))]
    for device in snapshot.devices:
        traces[device.device] = list(_events(device, frames))
    content = {
        "segments": [segment for device in snapshot.devices for segment in _segments(device, frames)],
        "device_traces": traces,
        "allocator_settings": dict(snapshot.settings),
        "external_annotations": [],
    }
    return pickle.dumps(content, protocol=PROTOCOL)


class _SharedFrames:
    """Turns stacks into lists of dictionaries; equal ones are one object, which the pickle holds once."""

    def __init__(self) -> None:
        self._stacks: dict[Stack, list[dict[str, Any]]] = {}
        self._frames: dict[Frame, dict[str, Any]] = {}

    def of(self, stack: Stack) -> list[dict[str, Any]]:
        found = self._stacks.get(stack)
        if found is None:
            found = self._stacks[stack] = [self._frame(frame) for frame in stack]
        return found

    def _frame(self, frame: Frame) -> dict[str, Any]:
        fields = {"filename": frame.file, "line": frame.line, "name": frame.function}
        return self._frames.setdefault(frame, fields)


def _segments(device: DeviceSnapshot, frames: _SharedFrames) -> Iterator[dict[str, Any]]:
    makers = {event.address: event.frames for event in device.events if event.action == "segment_alloc"}
    for segment in device.layout.segments:
        live = [block for block in segment.blocks if block.state != "free"]
        yield {
            "device": device.device,
            "address": segment.address,
            "total_size": int(segment.size),
            "allocated_size": sum(block.size for block in live if block.state == "allocated"),
            "active_size": sum(block.size for block in live),
            "requested_size": sum(block.requested for block in live),
            "stream": segment.stream,
            "segment_type": "small" if segment.small else "large",
            "segment_pool_id": pool_pair(segment.pool),
            "is_expandable": segment.expandable,
            "frames": frames.of(makers.get(segment.address, ())),
            "blocks": [_block(block, device, frames) for block in segment.blocks],
        }


def _block(block: BlockLayout, device: DeviceSnapshot, frames: _SharedFrames) -> dict[str, Any]:
    return {
        "address": block.address,
        "size": int(block.size),
        "requested_size": int(block.requested),
        "state": _STATES[block.state],
        "frames": frames.of(device.block_frames.get(block.address, ())),
    }


def _events(device: DeviceSnapshot, frames: _SharedFrames) -> Iterator[dict[str, Any]]:
    # Only a recording knows categories, and all that it does is start by taking a segment.
    categorised = any(category_of(event.frames) for event in device.events)
    for event in device.events:
        fields: dict[str, Any] = {
            "action": event.action,
            # For a request that failed it is what the device had left.
            "device_free" if event.action == "oom" else "addr": event.address,
            "size": event.nbytes,
            "stream": event.stream,
            "time_us": event.microseconds,
            "frames": frames.of(event.frames),
            "pool_id": pool_pair(event.pool),
        }
        if categorised:
            fields["category"] = _category(event)
        yield fields


def _category(event: SnapshotEvent) -> str:
    return (category_of(event.frames) if event.action == "alloc" else "") or "unknown"
