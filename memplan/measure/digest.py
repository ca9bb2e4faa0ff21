"""The digest of a replay: it is played once more, and what a reader can look at is kept."""

from bisect import insort
from heapq import nlargest
from typing import NamedTuple

from memplan.hardware.profile import GpuProfile
from memplan.lifetime.records import Category, Lifetimes
from memplan.measure.digest_records import (
    Curve,
    DigestBlock,
    DigestBuffer,
    DigestSegment,
    HistoryDigest,
    Holder,
    Span,
)
from memplan.measure.digest_script import Script
from memplan.measure.measured import Measured
from memplan.replay.blocks import Block
from memplan.replay.cpu import NoCaching
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import MemoryLayout, SegmentLayout
from memplan.replay.replay import make_allocator
from memplan.replay.segments import Segments
from memplan.replay.stream import RequestStream
from memplan.snapshot.recording import repetitions_to_peak
from memplan.units import StorageId

MOST_SAMPLES = 2000
"""Samples of the curve, the peak aside: about two for each pixel of a wide page."""
MOST_BUFFERS = 4000
"""Buffers that are kept one by one."""


def digest(profile: GpuProfile, measured: Measured) -> HistoryDigest:
    """Digest what was measured.

    Args:
        profile: The device.
        measured: The trace on it.

    Returns:
        A digest whose peaks are the measured ones.
    """
    memory = measured.memory
    return replay_digest(
        measured.lifetimes,
        measured.stream,
        policy=NoCaching() if profile.kind == "cpu" else measured.policy,
        peak_at=memory.peak_at,
        repetitions=repetitions_to_peak(measured.stream, memory),
        # Only a replay under the device's limit can have given its cache back.
        limit_bytes=profile.usable_bytes - profile.context_bytes if memory.retries else None,
        device_bytes=profile.total_bytes or None,
    )


def replay_digest(
    lifetimes: Lifetimes,
    stream: RequestStream,
    *,
    policy: AllocatorPolicy | NoCaching,
    peak_at: int,
    repetitions: int = 1,
    limit_bytes: int | None = None,
    device_bytes: int | None = None,
) -> HistoryDigest:
    """Play a trace's allocations from an empty device and digest them.

    Args:
        lifetimes: The trace, with the category of every storage.
        stream: Its requests (``memplan.replay.stream.request_stream`` of the same trace).
        policy: The allocator's options, or ``NoCaching()``.
        peak_at: The event of the peak (``MemoryProfile.peak_at``), after which the allocator is drawn.
        repetitions: How often the last step is played, where it closes.
        limit_bytes: Memory that the device can give the allocator; None for no limit.
        device_bytes: The device's total memory, where it differs from ``limit_bytes``.

    Returns:
        The digest; a full device ends its history.
    """
    script = Script(lifetimes, stream, repetitions)
    allocator = make_allocator(policy, limit_bytes=limit_bytes, device_bytes=device_bytes)
    watch = _Watch(lifetimes, script.length, peak_at)
    for index, request in enumerate(script.requests()):
        if request.action == "free":
            allocator.free(watch.freed(index, request.key))
        else:
            block = allocator.allocate(request.nbytes, request.stream)
            if block is None:
                break
            watch.allocated(index, request.key, block)
        watch.sample(index, allocator.reserved)
        if index == peak_at and isinstance(allocator, Segments):
            watch.draw(allocator.layout(), expandable=getattr(policy, "expandable_segments", False))
        if script.step_ends(index):
            watch.rename(stream)
    return watch.digest(script.spans(watch.played))


class _Sample(NamedTuple):
    """A moment of the replay."""

    event: int
    """After it."""
    allocated: int
    """Bytes in live blocks."""
    reserved: int
    """Most bytes in segments during its stretch."""
    held: dict[str, int]
    """``allocated`` by category."""


class _Watch:
    """What is kept of a replay in progress."""

    def __init__(self, lifetimes: Lifetimes, length: int, peak_at: int) -> None:
        self.played = 0
        """Events so far."""
        self._length = length
        self._peak_at = peak_at
        self._lifetimes = lifetimes
        self._holders: dict[Holder, int] = {}
        self._live: dict[int, tuple[Block, int, Holder]] = {}
        """Key → block, the event of its birth, and whose it is."""
        self._buffers: list[tuple[Holder, int, int, int]] = []
        self._held = dict.fromkeys(map(str, Category), 0)
        self._samples: list[_Sample] = []
        """The best moment of each stretch so far."""
        self._peak: _Sample | None = None
        self._reserved_peak = (-1, 0)
        self._segments: tuple[tuple[SegmentLayout, tuple[Holder | None, ...]], ...] = ()
        self._expandable = False

    def allocated(self, index: int, key: int, block: Block) -> None:
        """A request was served."""
        if key in self._live:
            # Nobody's successor: it stays for ever, under no name.
            self._keep(*self._live[key], self._length)
        holder = self._holder(StorageId(key))
        self._live[key] = block, index, holder
        self._held[holder.category] += block.size

    def freed(self, index: int, key: int) -> Block:
        """A block is about to go."""
        block, start, holder = self._live.pop(key)
        self._keep(block, start, holder, index)
        self._held[holder.category] -= block.size
        return block

    def rename(self, stream: RequestStream) -> None:
        """Let every key stand for what its successor stood for, as ``memplan.replay.replay`` does."""
        moved = {old: self._live[new] for old, new in stream.rename.items()}
        for new in stream.rename.values():
            del self._live[new]
        self._live.update(moved)

    def sample(self, index: int, reserved: int) -> None:
        """Look at the state after an event."""
        self.played = index + 1
        allocated = sum(self._held.values())
        number = index * min(MOST_SAMPLES, self._length) // self._length
        if number == len(self._samples):
            self._samples.append(_Sample(index, allocated, reserved, self._held.copy()))
        elif allocated > self._samples[-1].allocated:
            self._samples[-1] = _Sample(index, allocated, max(self._samples[-1].reserved, reserved), self._held.copy())
        elif reserved > self._samples[-1].reserved:
            self._samples[-1] = self._samples[-1]._replace(reserved=reserved)
        if index == self._peak_at:
            self._peak = _Sample(index, allocated, reserved, self._held.copy())
        if reserved > self._reserved_peak[1]:
            self._reserved_peak = index, reserved

    def draw(self, layout: MemoryLayout, *, expandable: bool) -> None:
        """Keep the allocator as it is now."""
        at = {block.address: holder for block, _, holder in self._live.values() if block.size}
        # A block that was freed still waits for another stream where it is not free: it has no owner any more.
        self._segments = tuple(
            (segment, tuple(at.get(block.address) if block.state != "free" else None for block in segment.blocks))
            for segment in layout.segments
        )
        self._expandable = expandable

    def digest(self, spans: tuple[Span, ...]) -> HistoryDigest:
        """The digest of what was played."""
        for entry in self._live.values():
            self._keep(*entry, self.played)
        largest = nlargest(MOST_BUFFERS, self._buffers, key=lambda buffer: buffer[1])
        buffers = tuple(
            DigestBuffer(self._number(holder), nbytes, start, min(end, self.played))
            for holder, nbytes, start, end in sorted(largest, key=lambda buffer: buffer[2])
        )
        segments = tuple(self._segment(segment, holders) for segment, holders in self._segments)
        if self._peak is not None and all(sample.event != self._peak_at for sample in self._samples):
            # Its stretch has a moment at which more is allocated, but less reserved.
            insort(self._samples, self._peak, key=lambda sample: sample.event)
        return HistoryDigest(
            events=self.played,
            peak_event=self._peak_at if self._peak is not None else -1,
            reserved_peak_event=self._reserved_peak[0],
            spans=spans,
            curve=self._curve(),
            holders=tuple(self._holders),
            buffers=buffers,
            buffers_left_out=len(self._buffers) - len(buffers),
            segments=segments,
        )

    def _curve(self) -> Curve:
        ever = [name for name in self._held if any(sample.held[name] for sample in self._samples)]
        return Curve(
            events=tuple(sample.event for sample in self._samples),
            allocated=tuple(sample.allocated for sample in self._samples),
            reserved=tuple(sample.reserved for sample in self._samples),
            categories={name: tuple(sample.held[name] for sample in self._samples) for name in ever},
        )

    def _segment(self, segment: SegmentLayout, holders: tuple[Holder | None, ...]) -> DigestSegment:
        blocks = (
            DigestBlock(-1 if holder is None else self._number(holder), block.size, block.requested)
            for block, holder in zip(segment.blocks, holders, strict=True)
        )
        return DigestSegment(
            stream=segment.stream, small=segment.small, expandable=self._expandable, blocks=tuple(blocks)
        )

    def _keep(self, block: Block, start: int, holder: Holder, end: int) -> None:
        if block.size:
            self._buffers.append((holder, block.size, start, end))

    def _number(self, holder: Holder) -> int:
        return self._holders.setdefault(holder, len(self._holders))

    def _holder(self, key: StorageId) -> Holder:
        trace, buffer = self._lifetimes.trace, self._lifetimes.buffers[key]
        storage = trace.storages[key]
        op = trace.ops[storage.birth].name if not storage.name and storage.birth < len(trace.ops) else ""
        name = storage.name.removeprefix(f"{buffer.module}.") if storage.name else op
        return Holder(buffer.module, buffer.source, name, str(buffer.category))
