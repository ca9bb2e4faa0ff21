"""A snapshot's history as requests, every allocation under a key of its own."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from memplan.errors import UsageError
from memplan.replay.records import Request
from memplan.snapshot.records import DeviceSnapshot, Frame, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRequests:
    """What a history asked of the allocator."""

    before: tuple[Request, ...]
    """Allocations of what was alive when the history began."""
    history: tuple[Request, ...]
    """Allocations and completed frees since."""
    survivors: tuple[Request, ...]
    """Allocations of the history that are alive after it."""
    frames: Mapping[int, tuple[Frame, ...]]
    """Key → call stack that asked for it, innermost first; only those recorded."""


def device_with_history(snapshot: Snapshot, path: Path) -> DeviceSnapshot:
    """The device with the longest history.

    Raises:
        UsageError: No device has a history of allocations.
    """
    device = max(snapshot.devices, key=lambda device: len(device.events), default=None)
    if device is None or not any(event.action == "alloc" for event in device.events):
        raise UsageError(
            "this snapshot holds no history of allocations",
            where=str(path),
            hint="record one with torch.cuda.memory._record_memory_history() before the steps",
        )
    return device


def history_requests(device: DeviceSnapshot) -> HistoryRequests:
    """Read a device's history as requests; blocks in private pools are treated like all others."""
    key_at: dict[int, int] = {}
    before: list[Request] = []
    history: list[Request] = []
    born: dict[int, Request] = {}
    frames: dict[int, tuple[Frame, ...]] = {}
    for event in device.events:
        if event.action == "alloc":
            key = key_at[event.address] = len(before) + len(history)
            born[event.address] = Request("alloc", key, event.nbytes, event.stream)
            history.append(born[event.address])
            frames[key] = event.frames
        elif event.action == "free_completed":
            born.pop(event.address, None)
            key = key_at.pop(event.address, -1)
            if key < 0:
                key = len(before) + len(history)
                before.append(Request("alloc", key, event.nbytes, event.stream))
            history.append(Request("free", key, 0, event.stream))
    for request, stack in _untouched(device, set(key_at), len(before) + len(history)):
        before.append(request)
        frames[request.key] = stack
    return HistoryRequests(
        before=tuple(before),
        history=tuple(history),
        survivors=tuple(born.values()),
        frames={key: stack for key, stack in frames.items() if stack},
    )


def _untouched(device: DeviceSnapshot, born: set[int], first_key: int) -> Iterator[tuple[Request, tuple[Frame, ...]]]:
    """Blocks that live throughout."""
    key = first_key
    for segment in device.layout.segments:
        for block in segment.blocks:
            if block.state != "free" and block.address not in born:
                request = Request("alloc", key, block.requested or block.size, segment.stream)
                yield request, device.block_frames.get(block.address, ())
                key += 1
