"""Replays a trace and writes the history down, as PyTorch writes down that of a GPU.

What it models: addresses, the order of events (a segment before the block that needs it, both halves of a free one
after the other), and who asked. What it does not: time. Its clock is made up, and only ever runs forwards: an op takes
as long as its arithmetic or its memory traffic would at the device's peak rates, whichever is longer, and each event
adds a microsecond.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, chain

from memplan.lifetime.records import Lifetimes
from memplan.replay.blocks import Block
from memplan.replay.cpu import NoCaching
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import MemoryProfile, Request
from memplan.replay.stream import RequestStream
from memplan.snapshot.policy import UNCACHED
from memplan.snapshot.recorded_frames import Stack, TraceStacks
from memplan.snapshot.recorded_segments import Extent, watched
from memplan.snapshot.records import Action, DeviceSnapshot, Snapshot, SnapshotEvent
from memplan.tracing.records import Event, Op


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRates:
    """How fast a device is at best."""

    flops: float
    """Arithmetic, FLOP per second."""
    bandwidth: float
    """Memory traffic, bytes per second."""


def record(
    lifetimes: Lifetimes,
    stream: RequestStream,
    *,
    policy: AllocatorPolicy | NoCaching,
    repetitions: int = 1,
    limit_bytes: int | None = None,
    device_bytes: int | None = None,
    rates: DeviceRates | None = None,
) -> Snapshot:
    """Replay a trace's allocations from an empty device and keep every event.

    Args:
        lifetimes: The trace, with the category of every storage.
        stream: Its requests (``memplan.replay.stream.request_stream`` of the same trace).
        policy: The allocator's options, or ``NoCaching()``, where every allocation is a segment of its own.
        repetitions: How often the last step is played, where it closes; see ``repetitions_to_peak``.
        limit_bytes: Memory that the device can give the allocator; None for no limit.
        device_bytes: The device's total memory, where it differs from ``limit_bytes``.
        rates: The device's peak rates for the clock; without them it counts events only.

    Returns:
        A snapshot of one device. A full device ends its history with ``oom``. Requests of 0 bytes leave no event.
    """
    recorder = _Recorder(lifetimes, stream, policy, limit_bytes=limit_bytes, device_bytes=device_bytes, rates=rates)
    recorder.play_all(repetitions)
    return Snapshot(devices=(recorder.snapshot(),), settings=_settings(policy))


def repetitions_to_peak(stream: RequestStream, memory: MemoryProfile) -> int:
    """How often the last step must be played until a replay's peaks are reached; at least once."""
    latest = max(memory.peak_allocated_at, memory.peak_at)
    return 1 + max(0, latest - len(stream.prefix)) // len(stream.step) if stream.step else 1


class _Recorder:
    """One history in progress."""

    def __init__(
        self,
        lifetimes: Lifetimes,
        stream: RequestStream,
        policy: AllocatorPolicy | NoCaching,
        *,
        limit_bytes: int | None,
        device_bytes: int | None,
        rates: DeviceRates | None,
    ) -> None:
        self._allocator = watched(policy, limit_bytes=limit_bytes, device_bytes=device_bytes)
        self._limit = limit_bytes
        self._stream = stream
        sources = [event for event in lifetimes.trace.events if event.storage in lifetimes.buffers]
        # The trace may end with frees that belong to no step, and to no stream.
        self._script = list(zip(chain(stream.prefix, stream.step), sources, strict=False))
        self._stacks = TraceStacks(lifetimes)
        self._clock = _Clock(lifetimes.trace.ops, rates)
        self._live: dict[int, Block] = {}
        self._frames: dict[int, Stack] = {}
        self._events: list[SnapshotEvent] = []

    def play_all(self, repetitions: int) -> None:
        """Play what comes before the last step, then that step so many times; stop where the device is full."""
        first = len(self._stream.prefix)
        prefix, step = self._script[:first], self._script[first:]
        if not self._play(prefix):
            return
        for _ in range(repetitions if step else 0):
            if not self._play(step):
                return
            self._rename()
            self._clock.repeat(step[0][1].op)

    def _play(self, script: Iterable[tuple[Request, Event]]) -> bool:
        """Play a stretch; False if the device was full."""
        for request, source in script:
            if not request.nbytes:
                continue
            if request.action == "free":
                self._free(self._live.pop(request.key), source, request.stream)
            elif not self._allocate(request, source):
                return False
        return True

    def _allocate(self, request: Request, source: Event) -> bool:
        nbytes, stream = request.nbytes, request.stream
        block = self._allocator.allocate(nbytes, stream)
        frames = self._stacks.of_alloc(source)
        self._segments(frames, source)
        if block is None:
            failure, left = self._allocator.failure, max(0, (self._limit or 0) - self._allocator.reserved)
            # PyTorch writes what it looked for, which is rounded, and not what was asked.
            self._write("oom", Extent(left, failure.rounded if failure else nbytes, stream), frames, source)
            return False
        self._live[request.key] = block
        self._frames[block.address] = frames
        self._write("alloc", Extent(block.address, nbytes, stream), frames, source)
        return True

    def _free(self, block: Block, source: Event, stream: int) -> None:
        frames, extent = self._stacks.of_free(source), Extent(block.address, block.requested or block.size, stream)
        self._write("free_requested", extent, frames, source)
        self._write("free_completed", extent, frames, source)
        del self._frames[block.address]
        self._allocator.free(block)
        self._segments(frames, source)

    def _segments(self, frames: Stack, source: Event) -> None:
        expandable = self._allocator.expandable
        for extent in self._allocator.lost:
            self._write("segment_unmap" if expandable else "segment_free", extent, frames, source)
        for extent in self._allocator.gained:
            self._write("segment_map" if expandable else "segment_alloc", extent, frames, source)

    def _write(self, action: Action, extent: Extent, frames: Stack, source: Event) -> None:
        microseconds = self._clock.at(source.op) + len(self._events)
        self._events.append(SnapshotEvent(action, *extent, frames, microseconds))

    def _rename(self) -> None:
        """Let every key stand for what its successor stood for, as ``memplan.replay.replay`` does."""
        moved = {old: self._live.pop(new) for old, new in self._stream.rename.items() if new in self._live}
        self._live.update(moved)

    def snapshot(self) -> DeviceSnapshot:
        return DeviceSnapshot(
            device=0, layout=self._allocator.layout(), events=tuple(self._events), block_frames=self._frames
        )


class _Clock:
    """The made-up time at which ops begin."""

    def __init__(self, ops: tuple[Op, ...], rates: DeviceRates | None) -> None:
        durations: Iterator[float] = (_microseconds(op, rates) for op in ops)
        self._begins = list(accumulate(durations, initial=0.0))
        self._offset = 0.0

    def at(self, op: int) -> int:
        """When an op begins, microseconds from the start."""
        return int(self._offset + self._begins[max(op, 0)])

    def repeat(self, first_op: int) -> None:
        """Go on from here when the ops from ``first_op`` on run once more."""
        self._offset += self._begins[-1] - self._begins[max(first_op, 0)]


def _microseconds(op: Op, rates: DeviceRates | None) -> float:
    return 1e6 * max(op.flops / rates.flops, op.bytes_moved / rates.bandwidth) if rates else 0.0


def _settings(policy: AllocatorPolicy | NoCaching) -> Mapping[str, object]:
    """The options under the names that PyTorch writes them (``allocator_settings``)."""
    if isinstance(policy, NoCaching):
        return UNCACHED
    divisions = policy.roundup_power2_divisions
    return {
        "max_split_size": -1 if policy.max_split_size is None else int(policy.max_split_size),
        "garbage_collection_threshold": policy.garbage_collection_threshold,
        "expandable_segments": policy.expandable_segments,
        "roundup_power2_divisions": {str(1 << index): step for index, step in enumerate(divisions)},
    }
