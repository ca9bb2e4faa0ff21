"""A full recording of a run as a snapshot, so that every viewer of predictions shows what was measured, too.

There is no allocator in a recording: every block is a segment of its own, as in a prediction for the CPU, and the
settings say so. In place of a call stack stand the regions that the thread was in.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from memplan.errors import UsageError
from memplan.replay.layout import uncached
from memplan.runtime.profile.recording import Recording
from memplan.snapshot.policy import UNCACHED
from memplan.snapshot.recorded_frames import REGION, Stack
from memplan.snapshot.records import Action, DeviceSnapshot, Frame, Snapshot, SnapshotEvent

if TYPE_CHECKING:
    from memplan.runtime.profile.records import Border


def measured_snapshot(recording: Recording) -> Snapshot:
    """What a recording saw, as a snapshot of one device.

    A free of what was there before the recording is left out, as its allocation is.

    Raises:
        UsageError: It is of another depth.
    """
    if recording.events is None:
        what = f"a recording of depth '{recording.depth}' has no events"
        raise UsageError(what, hint="record it with memplan.profile(..., depth='full')")
    live: dict[int, tuple[int, Stack]] = {}
    events = tuple(_events(recording, live))
    device = DeviceSnapshot(
        device=int(recording.device.partition(":")[2] or 0),
        layout=uncached((address, nbytes) for address, (nbytes, _) in sorted(live.items())),
        events=events,
        block_frames={address: stack for address, (_, stack) in live.items()},
    )
    return Snapshot(devices=(device,), settings=UNCACHED)


def _events(recording: Recording, live: dict[int, tuple[int, Stack]]) -> Iterator[SnapshotEvent]:
    """Events in order; ``live`` holds what is left in the end."""
    events = recording.events
    if events is None:
        return
    stacks = _Stacks(recording)
    columns = zip(events.nanoseconds, events.addresses, events.sizes, events.threads, strict=True)
    for nanoseconds, address, size, thread in columns:
        stack, microseconds = stacks.at(nanoseconds, thread), max(nanoseconds, 0) // 1000
        actions: tuple[Action, ...]
        if size > 0:
            live[address] = size, stack
            actions = ("segment_alloc", "alloc")
        elif live.pop(address, None) is not None:
            actions = ("free_requested", "free_completed", "segment_free")
        else:
            continue
        for action in actions:
            yield SnapshotEvent(action, address, abs(size), 0, stack, microseconds)


class _Stacks:
    """The regions that a thread was in, as frames, innermost first; equal stacks are one object."""

    def __init__(self, recording: Recording) -> None:
        self._known: dict[int, Stack] = {-1: ()}
        for index, region in enumerate(recording.regions):
            self._known[index] = tuple(Frame(REGION, 0, name) for name in reversed(region.path))
        self._borders: dict[int, list[Border]] = defaultdict(list)
        for border in recording.borders:
            self._borders[border.thread].append(border)
        self._times = {thread: [border.nanoseconds for border in log] for thread, log in self._borders.items()}
        # Threads of PyTorch's own, such as those of the backward pass, work for the one that recorded.
        self._first = recording.borders[0].thread if recording.borders else -1

    def at(self, nanoseconds: int, thread: int) -> Stack:
        """The stack of a thread at a moment."""
        which = thread if thread in self._times else self._first
        index = bisect_right(self._times.get(which, []), nanoseconds) - 1
        return self._known[self._borders[which][index].region] if index >= 0 else ()
