"""Everything that a snapshot tells about one device, in one record."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import sub

from memplan.errors import EstimateError
from memplan.replay.conf import parse_conf
from memplan.replay.cpu import NoCaching
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.validate import Fault, validate
from memplan.snapshot.comparison import HistoryReplay
from memplan.snapshot.frames import CodePlace, place_of
from memplan.snapshot.history import kinds_of_segments, replay_history
from memplan.snapshot.policy import RecordedPolicy
from memplan.snapshot.records import DeviceSnapshot
from memplan.snapshot.state import (
    OutOfMemoryCause,
    OutOfMemoryEvent,
    StateNow,
    out_of_memory_events,
    state_now,
)
from memplan.snapshot.timeline import PlaceTotal, Timeline, holdings, holdings_now, owners, stacks, timeline
from memplan.snapshot.what_if import CANDIDATES, WhatIf, what_if
from memplan.units import Bytes

FRAGMENTED = 0.05
"""Share of the reserved peak never in use at once, from which memory counts as fragmented: memplan's own line."""
NOT_CACHED = "every block is a segment of its own, so there is no allocator to replay"
"""What stands in place of a comparison for the CPU's memory, predicted or measured."""
_WINDOWS = re.compile(r"^[A-Za-z]:\\")
_MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A point of a history."""

    event: int
    """Events before it."""
    seconds: float
    """Time since the first event; 0 where no times were recorded."""
    allocated: Bytes
    """Bytes in blocks that are not free."""
    requested: Bytes
    """Bytes asked for, of those blocks."""
    reserved: Bytes
    """Bytes in segments."""
    place: CodePlace | None
    """Where in the program the last event before it comes from; None at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotAnalysis:
    """What one device's part of a snapshot says."""

    device: int
    """Index of the device."""
    policy: RecordedPolicy
    """The options that it ran with."""
    events: int
    """Length of its history."""
    allocations: int
    """Allocations in it."""
    segment_events: int
    """Times that memory was taken from or given back to the device."""
    seconds: float
    """Time from its first to its last event; 0 where no times were recorded."""
    curves: Timeline
    """Bytes over the history; a single point without one."""
    start: Moment
    """Before the first event."""
    peak: Moment
    """When most was allocated."""
    reserved_peak: Moment
    """When most was reserved."""
    owners: tuple[PlaceTotal, ...]
    """Who held the memory at ``peak``, by place in the program."""
    stacks: tuple[PlaceTotal, ...]
    """The same by whole call stack."""
    now: StateNow
    """The state in the snapshot."""
    alive: tuple[PlaceTotal, ...]
    """Who holds what is still allocated."""
    failures: tuple[OutOfMemoryEvent, ...]
    """Requests that failed."""
    replay: HistoryReplay | None
    """The model beside the history; None where they could not be compared."""
    not_compared: str
    """Why not; empty where they were."""
    baseline: WhatIf | None
    """The recorded policy replayed as every what-if is; None without what-ifs."""
    what_ifs: tuple[WhatIf, ...]
    """Other policies."""
    notes: tuple[str, ...]
    """What a reader should know about the file itself."""

    @property
    def slack(self) -> float:
        """Share of the reserved peak that was never in use at once; 0 where the history contradicts itself."""
        reserved = self.reserved_peak.reserved
        return max(0.0, 1 - self.peak.allocated / reserved) if reserved else 0.0

    @property
    def caching(self) -> bool:
        """Was there a caching allocator? The CPU has none."""
        return not isinstance(self.policy.policy, NoCaching)

    @property
    def fragmented(self) -> bool:
        """Is that much?"""
        return self.slack >= FRAGMENTED


def analyse(snapshot: DeviceSnapshot, recorded: RecordedPolicy, replay_confs: Sequence[str] = ()) -> SnapshotAnalysis:
    """Work out what a snapshot says about a device.

    The policies named are tried; where memory is fragmented, some are tried unasked.

    Raises:
        UsageError: One of ``replay_confs`` is wrong.
    """
    recorded, conflict = _as_seen(snapshot, recorded)
    replay, reason = _replay(snapshot, recorded.policy)
    curves = timeline(snapshot, recorded.policy, replay)
    held = holdings(snapshot, recorded.policy, replay, curves.peak)
    failures = out_of_memory_events(snapshot, recorded.policy, curves)
    found = SnapshotAnalysis(
        device=snapshot.device,
        policy=recorded,
        events=len(snapshot.events),
        allocations=sum(event.action == "alloc" for event in snapshot.events),
        segment_events=sum(event.action.startswith("segment") for event in snapshot.events),
        seconds=_seconds(snapshot, len(snapshot.events)),
        curves=curves,
        start=_moment(snapshot, curves, 0),
        peak=_moment(snapshot, curves, curves.peak),
        reserved_peak=_moment(snapshot, curves, curves.reserved_peak),
        owners=owners(held),
        stacks=stacks(held),
        now=state_now(snapshot, recorded.policy),
        alive=owners(holdings_now(snapshot)),
        failures=failures,
        replay=replay,
        not_compared=reason,
        baseline=None,
        what_ifs=(),
        notes=(*_notes(snapshot, recorded, curves), *conflict),
    )
    confs = tuple(replay_confs) or _candidates(snapshot, found)
    if not confs:
        return found
    return replace(
        found,
        baseline=what_if(snapshot, _caching(recorded.policy), recorded.conf, failures=failures),
        what_ifs=tuple(what_if(snapshot, parse_conf(conf), conf, failures=failures) for conf in confs),
    )


def _as_seen(snapshot: DeviceSnapshot, recorded: RecordedPolicy) -> tuple[RecordedPolicy, tuple[str, ...]]:
    """The options with the kind of segments that there really is, and a note where the options say otherwise."""
    if isinstance(recorded.policy, NoCaching):
        return recorded, ()
    kinds, asked = kinds_of_segments(snapshot), recorded.policy.expandable_segments
    if len(kinds) != 1 or asked in kinds:
        return recorded, ()
    policy = replace(recorded.policy, expandable_segments=not asked)
    # Old files do not name the option, and where expandable segments cannot be had PyTorch goes without them.
    note = ("expandable segments were asked for, but there are none in this snapshot",) if asked else ()
    return replace(recorded, policy=policy), note


def _caching(policy: AllocatorPolicy | NoCaching) -> AllocatorPolicy:
    """What other options are held against: PyTorch's defaults, where there were none."""
    return AllocatorPolicy() if isinstance(policy, NoCaching) else policy


def _replay(snapshot: DeviceSnapshot, policy: AllocatorPolicy | NoCaching) -> tuple[HistoryReplay | None, str]:
    if isinstance(policy, NoCaching):
        return None, NOT_CACHED
    try:
        return replay_history(snapshot, policy=policy), ""
    except EstimateError as error:
        return None, error.what


def _moment(snapshot: DeviceSnapshot, curves: Timeline, index: int) -> Moment:
    return Moment(
        event=index,
        seconds=_seconds(snapshot, index),
        allocated=Bytes(curves.allocated[index]),
        requested=Bytes(curves.requested[index]),
        reserved=Bytes(curves.reserved[index]),
        place=place_of(snapshot.events[index - 1].frames) if index else None,
    )


def _seconds(snapshot: DeviceSnapshot, index: int) -> float:
    """Time from the first event to the last before an index."""
    if not index or not snapshot.events[0].microseconds:
        return 0.0
    return max(0, snapshot.events[index - 1].microseconds - snapshot.events[0].microseconds) / _MICROSECONDS


def _candidates(snapshot: DeviceSnapshot, found: SnapshotAnalysis) -> tuple[str, ...]:
    """Policies worth a try: only where there is a history, and something to gain."""
    caused = any(failure.cause is OutOfMemoryCause.FRAGMENTATION for failure in found.failures)
    if not snapshot.events or not (found.fragmented or caused):
        return ()
    distinct = {id(event.frames): event.frames for event in snapshot.events}
    windows = any(_WINDOWS.search(frame.file) for stack in distinct.values() for frame in stack)
    # PyTorch has no expandable segments on Windows.
    return tuple(conf for conf in CANDIDATES if not (windows and conf.startswith("expandable")))


def _notes(snapshot: DeviceSnapshot, recorded: RecordedPolicy, curves: Timeline) -> list[str]:
    # Blocks of 512 bytes are the caching allocator's way.
    wrong = [
        fault
        for fault in validate(snapshot.layout)
        if fault.fault is not Fault.MISALIGNED or not isinstance(recorded.policy, NoCaching)
    ]
    notes = [
        f"the file contradicts itself{f' at {fault.address:#x}' if fault.address else ''}: {fault.detail}"
        for fault in wrong[:1]
    ]
    impossible = (index for index, free in enumerate(map(sub, curves.reserved, curves.allocated)) if free < 0)
    if (index := next(impossible, None)) is not None:
        notes.append(f"the history contradicts itself: after {index:,} events more is allocated than reserved")
    if recorded.problem:
        notes.append(f"the allocator's options were not understood: {recorded.problem}")
    if not snapshot.events:
        notes.append("no history was recorded: peaks, owners and timeline are those of the moment of the snapshot")
    elif not any(event.frames for event in snapshot.events):
        notes.append("no call stacks were recorded: owners are not known")
    return notes
