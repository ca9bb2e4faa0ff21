"""Replays a trace and writes the history down, as PyTorch writes down that of a GPU.

What it models: addresses, the order of events (a segment before the block that needs it, both halves of a free one
after the other), and who asked. What it does not: time. Its clock is made up, and only ever runs forwards: an op takes
as long as its arithmetic or its memory traffic would at the device's peak rates, whichever is longer, and each event
adds a microsecond.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from memplan.replay.blocks import Block, Pool
from memplan.replay.cpu import NoCaching
from memplan.replay.layout import uncached
from memplan.replay.observer import Observer
from memplan.replay.play import Player
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.script import ReplayScript
from memplan.replay.segments import Segments
from memplan.snapshot.policy import UNCACHED
from memplan.snapshot.recorded_frames import TraceStacks
from memplan.snapshot.records import Action, DeviceSnapshot, Snapshot, SnapshotEvent
from memplan.tracing.records import Op


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRates:
    """How fast a device is at best."""

    flops: float
    """Arithmetic, FLOP per second."""
    bandwidth: float
    """Memory traffic, bytes per second."""


class EventWriter(Observer):
    """Writes down every event of a replay; without a device's peak rates its clock counts events only."""

    def __init__(self, script: ReplayScript, rates: DeviceRates | None = None) -> None:
        self._script = script
        self._stacks = TraceStacks(script.lifetimes)
        self._clock = _Clock(script, rates)
        self._live: dict[Block, SnapshotEvent] = {}
        """Block → the event that allocated it."""
        self._device: list[SnapshotEvent] = []
        """What was taken from the device and given back, until it is known for whom."""
        self._events: list[SnapshotEvent] = []

    def map(self, pool: Pool, address: int, nbytes: int) -> None:
        """Note a segment taken, or a part of one mapped."""
        action: Action = "segment_map" if pool.unit else "segment_alloc"
        self._device.append(SnapshotEvent(action, address, nbytes, pool.stream))

    def unmap(self, pool: Pool, address: int, nbytes: int) -> None:
        """Note a segment given back, or a part of one unmapped."""
        action: Action = "segment_unmap" if pool.unit else "segment_free"
        self._device.append(SnapshotEvent(action, address, nbytes, pool.stream))

    def alloc(self, index: int, key: int, block: Block) -> None:  # noqa: ARG002 - the block says it
        """Write an allocation, after what it took from the device; one of 0 bytes leaves no event."""
        if block.size:
            event = SnapshotEvent("alloc", block.address, block.requested or block.size, block.pool.stream)
            self._live[block] = self._write([*self._device, event], index)

    def free(self, index: int, key: int, block: Block) -> None:  # noqa: ARG002 - the block says it
        """Write both halves of a free, before what it gave back to the device."""
        born = self._live.pop(block, None)
        if born is not None:
            halves = [born._replace(action=half) for half in _HALVES]
            self._write([*halves, *self._device], index, freed=True)

    def snapshot(self, player: Player, policy: AllocatorPolicy | NoCaching, limit_bytes: int | None) -> Snapshot:
        """The history that was played under a policy and limit, and the state after it."""
        allocator, failure = player.allocator, player.out_of_memory
        if failure is not None:
            # PyTorch writes what it looked for, which is rounded, and not what was asked.
            left = max(0, (limit_bytes or 0) - allocator.reserved)
            full = SnapshotEvent("oom", left, failure.rounded, failure.stream)
            self._write([*self._device, full], failure.event)
        live = self._live.values()
        device = DeviceSnapshot(
            device=0,
            layout=allocator.layout()
            if isinstance(allocator, Segments)
            else uncached((born.address, born.nbytes) for born in live),
            events=tuple(self._events),
            block_frames={born.address: born.frames for born in live},
        )
        return Snapshot(devices=(device,), settings=_settings(policy))

    def _write(self, happened: Sequence[SnapshotEvent], index: int, *, freed: bool = False) -> SnapshotEvent:
        """Put what event ``index`` did into the history, with who asked and when; the last of it."""
        source, repetition = self._script.source(index)
        frames = self._stacks.of_free(source) if freed else self._stacks.of_alloc(source)
        begin = self._clock.at(source.op, repetition)
        for event in happened:
            self._events.append(event._replace(frames=frames, microseconds=begin + len(self._events)))
        self._device.clear()
        return self._events[-1]


_HALVES: tuple[Action, ...] = ("free_requested", "free_completed")


class _Clock:
    """The made-up time at which ops begin."""

    def __init__(self, script: ReplayScript, rates: DeviceRates | None) -> None:
        durations: Iterator[float] = (_microseconds(op, rates) for op in script.lifetimes.trace.ops)
        self._begins = list(accumulate(durations, initial=0.0))
        self._step = self._begins[-1] - self._begins[max(script.first_op, 0)]

    def at(self, op: int, repetition: int) -> int:
        """When an op of a repetition begins, microseconds from the start."""
        return int(repetition * self._step + self._begins[max(op, 0)])


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
