"""From a trace to what a replay plays: the requests of its device storages, and how its last step repeats."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from memplan.replay.records import RepeatedTurn, Request
from memplan.tracing.records import Event, Storage, Trace
from memplan.tracing.turns import turns_repeat
from memplan.units import StorageId


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStream:
    """A trace's allocations, ready for ``replay_steps(stream.prefix, stream.step, stream.rename, policy=…)``."""

    prefix: tuple[Request, ...]
    """What comes before the last step; everything, if the last step does not close."""
    step: tuple[Request, ...]
    """The last step; empty if it does not close."""
    rename: Mapping[int, int]
    """Key that the step frees but did not allocate → the key in its place one repetition later."""
    closes: bool
    """Does every storage that the last step frees from before it have an heir, born the same way one step later?"""
    turns: tuple[RepeatedTurn, ...] = ()
    """Stretches of prefix and step that stand for more, in order."""


def device_requests(trace: Trace, events: Sequence[Event] | None = None) -> tuple[Request, ...]:
    """Requests of a trace's device storages, keyed by storage id; of these events, or of all."""
    storages = trace.storages
    return tuple(
        Request(event.action, event.storage, storages[event.storage].nbytes, storages[event.storage].stream)
        for event in (trace.events if events is None else events)
        if storages[event.storage].place == "device"
    )


def freed_late(trace: Trace) -> Trace | None:
    """The trace whose shared blocks come back when the host has waited for their streams; None if there are none."""
    if not any(storage.pending for storage in trace.storages):
        return None
    pending = [trace.storages[event.storage].pending if event.action == "free" else 0 for event in trace.events]
    # A free comes after all up to the event at which it is known that streams are done.
    order = sorted(range(len(pending)), key=lambda index: (index + pending[index], pending[index]))
    # What one turn frees late falls into the next, as what the one before it freed late falls into it.
    moments = sorted(index + later for index, later in enumerate(pending))
    names = ("former_event", "first_event", "end_event")
    turns = [
        replace(turn, **{name: bisect_left(moments, getattr(turn, name)) for name in names}) for turn in trace.turns
    ]
    return replace(trace, events=tuple(trace.events[index] for index in order), turns=tuple(turns))


def as_run(trace: Trace) -> Trace:
    """The trace as a device runs it that is behind its host: shared blocks come back late, where turns still repeat."""
    late = freed_late(trace)
    return late if late is not None and turns_repeat(late) else trace


def request_stream(trace: Trace) -> RequestStream:
    """Cut a trace before its last step and find out what takes the place of what.

    The heir of a storage is the one born in the next step by the same op of the same module (or under the same name),
    with the same size and stream, and as many alike born before it. Frees after the last step belong to the end of the
    program, not to the step, and are left out.
    """
    heirs = _heirs(trace)
    end = trace.steps[-1].end_event if trace.steps else len(trace.events)
    cut = trace.steps[-1].first_event if trace.steps and heirs is not None else end
    return RequestStream(
        prefix=device_requests(trace, trace.events[:cut]),
        step=device_requests(trace, trace.events[cut:end]),
        rename={int(old): int(new) for old, new in (heirs or {}).items()},
        closes=bool(trace.steps) and heirs is not None,
        turns=tuple(_repeated_turns(trace)),
    )


def resized(stream: RequestStream, sizes: Mapping[StorageId, int]) -> RequestStream:
    """The same stream with other sizes of some storages."""

    def requests(former: tuple[Request, ...]) -> tuple[Request, ...]:
        return tuple(request._replace(nbytes=sizes.get(StorageId(request.key), request.nbytes)) for request in former)

    return replace(stream, prefix=requests(stream.prefix), step=requests(stream.step))


def _repeated_turns(trace: Trace) -> Iterator[RepeatedTurn]:
    """Where turns of a trace are among its requests."""
    if not trace.turns:
        return
    on_device = (trace.storages[event.storage].place == "device" for event in trace.events)
    requests = [0, *accumulate(on_device)]
    births = [0, *accumulate(event.action == "alloc" for event in trace.events)]
    for turn in trace.turns:
        first, end = turn.first_event, turn.end_event
        yield RepeatedTurn(
            first=requests[first],
            end=requests[end],
            first_key=births[first],
            keys=births[end] - births[first],
            further=turn.further,
        )


def _heirs(trace: Trace) -> dict[StorageId, StorageId] | None:
    """Successors of all that the last step frees from before it; None if one has none that is alive in the end."""
    if not trace.steps:
        return None
    last = trace.events[trace.steps[-1].first_event : trace.steps[-1].end_event]
    born = {event.storage for event in last if event.action == "alloc"}
    freed = [event.storage for event in last if event.action == "free"]
    gone = set(freed)
    next_of = _next_step_twins(trace)
    heirs: dict[StorageId, StorageId] = {}
    queue = [key for key in freed if key not in born and trace.storages[key].place == "device"]
    while queue:
        old = queue.pop()
        new = next_of.get(old)
        if new is None or new in gone:
            return None
        heirs[old] = new
        if new not in born:
            # It outlives this step and falls one repetition later: then its own heir must be ready.
            queue.append(new)
    return heirs


def _next_step_twins(trace: Trace) -> dict[StorageId, StorageId]:
    """Storage → the one born likewise in the next step."""
    twins: dict[StorageId, StorageId] = {}
    earlier: dict[Hashable, list[StorageId]] = {}
    start = 0
    for step in trace.steps:
        # What precedes a step, such as placing its batch, counts as part of it.
        births = _births(trace, trace.events[start : step.end_event])
        for likeness, keys in births.items():
            twins.update(zip(earlier.get(likeness, ()), keys, strict=False))
        earlier, start = births, step.end_event
    return twins


def _births(trace: Trace, events: Sequence[Event]) -> dict[Hashable, list[StorageId]]:
    births: dict[Hashable, list[StorageId]] = defaultdict(list)
    for event in events:
        if event.action == "alloc":
            births[_likeness(trace, trace.storages[event.storage])].append(event.storage)
    return births


def _likeness(trace: Trace, storage: Storage) -> Hashable:
    op = trace.ops[storage.birth] if storage.birth < len(trace.ops) else None
    # What has a name was placed, between whichever ops that happened to be; so was a batch: a program's first comes
    # before any op, and the next after an update.
    placed = storage.name or storage.role == "input"
    maker = (op.name, op.module, op.phase) if op is not None and not placed else None
    return (maker, storage.nbytes, storage.stream, storage.place, storage.role, storage.name)
