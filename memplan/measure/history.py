"""The history behind an estimate: its replay once more, written down, digested, or both."""

from bisect import insort
from heapq import nlargest
from itertools import pairwise
from typing import NamedTuple

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.lifetime.records import Category
from memplan.measure.context import context_of
from memplan.measure.digest_records import (
    Curve,
    DigestBlock,
    DigestBuffer,
    DigestSegment,
    HistoryDigest,
    Holder,
    Span,
)
from memplan.measure.measured import Measured
from memplan.replay.allocator import Allocator, make_allocator
from memplan.replay.blocks import Block
from memplan.replay.cpu import NoCaching
from memplan.replay.observer import Observer
from memplan.replay.records import MemoryLayout, SegmentLayout
from memplan.replay.script import ReplayScript, repetitions_to_peak
from memplan.replay.segments import Segments
from memplan.snapshot.recording import DeviceRates, EventWriter
from memplan.snapshot.records import Snapshot
from memplan.tracing.records import Phase
from memplan.units import StorageId

MOST_SAMPLES = 2000
"""Samples of the curve, the peak aside: about two for each pixel of a wide page."""
MOST_BUFFERS = 4000
"""Buffers that are kept one by one."""


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


def recorded(
    spec: JobSpec, profile: GpuProfile, measured: Measured, *, whole: bool
) -> tuple[Snapshot | None, HistoryDigest]:
    """Record what was measured: a history, if it is asked for, and a digest, whose peaks are the measured ones.

    The job's precision decides how fast the device computes, for the history's clock.
    """
    memory = measured.memory
    # Only a replay under the device's limit can have given its cache back.
    context = context_of(profile, measured.lifetimes.trace).context_bytes
    limit = profile.usable_bytes - context if memory.retries else None
    policy = NoCaching() if profile.kind == "cpu" else measured.policy
    script = ReplayScript(measured.lifetimes, measured.stream, repetitions_to_peak(measured.stream, memory))
    allocator = make_allocator(policy, limit_bytes=limit, device_bytes=profile.total_bytes or None)
    digester = Digester(script, allocator, memory.peak_at)
    recorder = EventWriter(script, _rates(spec, profile)) if whole else None
    player = script.play(allocator, (digester, recorder) if recorder is not None else (digester,))
    return recorder.snapshot(player, policy, limit) if recorder is not None else None, digester.digest()


def _rates(spec: JobSpec, profile: GpuProfile) -> DeviceRates | None:
    flops = profile.peak_flops.get(spec.precision.removesuffix("-mixed"))
    if not flops or not profile.memory_bandwidth:
        return None
    return DeviceRates(flops=flops, bandwidth=profile.memory_bandwidth)


class Digester(Observer):
    """Keeps of a replay in progress what a reader can look at.

    ``peak_at`` is the event of the peak (``MemoryProfile.peak_at``), after which the allocator is drawn.
    """

    def __init__(self, script: ReplayScript, allocator: Allocator, peak_at: int) -> None:
        self._script = script
        self._allocator = allocator
        self._peak_at = peak_at
        self._played = 0
        self._holders: dict[Holder, int] = {}
        self._live: dict[Block, tuple[int, int, Holder]] = {}
        """Block → its bytes, the event of its birth, and whose it is."""
        self._buffers: list[tuple[Holder, int, int, int]] = []
        self._held = dict.fromkeys(map(str, Category), 0)
        self._samples: list[_Sample] = []
        """The best moment of each stretch so far."""
        self._peak: _Sample | None = None
        self._reserved_peak = (-1, 0)
        self._segments: tuple[tuple[SegmentLayout, tuple[Holder | None, ...]], ...] = ()

    def alloc(self, index: int, key: int, block: Block) -> None:
        """Count a block as its holder's."""
        holder = self._holder(StorageId(key))
        self._live[block] = block.size, index, holder
        self._held[holder.category] += block.size
        self._sample(index)

    def free(self, index: int, key: int, block: Block) -> None:  # noqa: ARG002 - the block says it
        """Keep what lived until now."""
        nbytes, start, holder = self._live.pop(block)
        self._keep(nbytes, start, holder, index)
        self._held[holder.category] -= nbytes
        self._sample(index)

    def _sample(self, index: int) -> None:
        """Look at the state after an event."""
        self._played = index + 1
        allocated, reserved = self._allocator.allocated, self._allocator.reserved
        number = index * min(MOST_SAMPLES, self._script.length) // self._script.length
        if number == len(self._samples):
            self._samples.append(_Sample(index, allocated, reserved, self._held.copy()))
        elif allocated > self._samples[-1].allocated:
            self._samples[-1] = _Sample(index, allocated, max(self._samples[-1].reserved, reserved), self._held.copy())
        elif reserved > self._samples[-1].reserved:
            self._samples[-1] = self._samples[-1]._replace(reserved=reserved)
        if index == self._peak_at:
            self._peak = _Sample(index, allocated, reserved, self._held.copy())
            if isinstance(self._allocator, Segments):
                self._draw(self._allocator.layout())
        if reserved > self._reserved_peak[1]:
            self._reserved_peak = index, reserved

    def _draw(self, layout: MemoryLayout) -> None:
        """Keep the allocator as it is now."""
        at = {block.address: holder for block, (nbytes, _, holder) in self._live.items() if nbytes}
        # A block that was freed still waits for another stream where it is not free: it has no owner any more.
        self._segments = tuple(
            (segment, tuple(at.get(block.address) if block.state != "free" else None for block in segment.blocks))
            for segment in layout.segments
        )

    def digest(self) -> HistoryDigest:
        """The digest of what was played."""
        for entry in self._live.values():
            self._keep(*entry, self._played)
        largest = nlargest(MOST_BUFFERS, self._buffers, key=lambda buffer: buffer[1])
        buffers = tuple(
            DigestBuffer(self._number(holder), nbytes, start, end)
            for holder, nbytes, start, end in sorted(largest, key=lambda buffer: buffer[2])
        )
        segments = tuple(self._segment(segment, holders) for segment, holders in self._segments)
        if self._peak is not None and all(sample.event != self._peak_at for sample in self._samples):
            # Its stretch has a moment at which more is allocated, but less reserved.
            insort(self._samples, self._peak, key=lambda sample: sample.event)
        return HistoryDigest(
            events=self._played,
            peak_event=self._peak_at if self._peak is not None else -1,
            reserved_peak_event=self._reserved_peak[0],
            spans=self._spans(),
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
            stream=segment.stream, small=segment.small, expandable=segment.expandable, blocks=tuple(blocks)
        )

    def _spans(self) -> tuple[Span, ...]:
        """Runs of events of one phase and step."""
        moments = [self._moment(index) for index in range(self._played)]
        starts = [index for index in range(self._played) if not index or moments[index] != moments[index - 1]]
        return tuple(Span(*moments[start], start, end) for start, end in pairwise([*starts, self._played]))

    def _moment(self, index: int) -> tuple[Phase, int]:
        source, repetition = self._script.source(index)
        ops, steps = self._script.lifetimes.trace.ops, self._script.lifetimes.trace.steps
        phase = ops[source.op].phase if 0 <= source.op < len(ops) else "setup"
        return phase, sum(step.first_op <= source.op for step in steps) + repetition

    def _keep(self, nbytes: int, start: int, holder: Holder, end: int) -> None:
        if nbytes:
            self._buffers.append((holder, nbytes, start, end))

    def _number(self, holder: Holder) -> int:
        return self._holders.setdefault(holder, len(self._holders))

    def _holder(self, key: StorageId) -> Holder:
        lifetimes = self._script.lifetimes
        trace, buffer = lifetimes.trace, lifetimes.buffers[key]
        storage = trace.storages[key]
        op = trace.ops[storage.birth].name if not storage.name and storage.birth < len(trace.ops) else ""
        name = storage.name.removeprefix(f"{buffer.module}.") if storage.name else op
        return Holder(buffer.module, buffer.source, name, str(buffer.category))
