"""Allocation streams of both sides in one form: of a trace, and of an allocator's history."""

from array import array
from collections.abc import Iterable, Iterator, Sequence

from memplan.snapshot.records import SnapshotEvent
from memplan.tracing.records import Event, Storage, Trace
from memplan.validate.frames import cause_of
from memplan.validate.records import PARTS, AllocationStream, Cause

_NAMED = frozenset({"parameter", "buffer", "input"})
"""Roles of storages that are placed rather than made by an op."""


class StreamWriter:
    """Collects events, keeping each distinct cause once."""

    def __init__(self) -> None:
        self._sizes = array("q")
        self._causes = array("l")
        self._known: dict[Cause, int] = {}

    def __len__(self) -> int:
        """Events so far."""
        return len(self._sizes)

    def add(self, size: int, cause: Cause) -> None:
        """One event; ``size`` is negative for a free."""
        self._sizes.append(size)
        self._causes.append(self._known.setdefault(cause, len(self._known)))

    def stream(self, marks: Iterable[int], phases: "array[int] | None" = None) -> AllocationStream:
        """All of it."""
        return AllocationStream(
            sizes=self._sizes, causes=self._causes, known=tuple(self._known), marks=tuple(marks), phases=phases
        )


def predicted_stream(trace: Trace, *, steps: int) -> AllocationStream:
    """The device events of a trace, its last step repeated until there are ``steps`` of them.

    Args:
        trace: A trace of whole steps.
        steps: At least 1. A trace that does not repeat gives no more steps than it has.
    """
    written, phases, marks = StreamWriter(), array("b"), []
    for first, events in _spans(trace, steps):
        if first:
            marks.append(len(written))
        for event in events:
            storage = trace.storages[event.storage]
            if storage.place == "device" and storage.nbytes:
                size = storage.nbytes if event.action == "alloc" else -storage.nbytes
                written.add(size, _predicted_cause(trace, event, storage))
                phases.append(PARTS.index(trace.ops[event.op].phase) if event.op >= 0 and marks else 0)
    return written.stream(marks, phases)


def _spans(trace: Trace, steps: int) -> Iterator[tuple[bool, Sequence[Event]]]:
    """Set-up, then each step: whether it is a step, and its events."""
    if not trace.steps:
        yield False, trace.events
        return
    yield False, trace.events[: trace.steps[0].first_event]
    ranges = list(trace.steps[:steps])
    if trace.repeats:
        ranges += [trace.steps[-1]] * (steps - len(ranges))
    for each in ranges:
        yield True, trace.events[each.first_event : each.end_event]


def _predicted_cause(trace: Trace, event: Event, storage: Storage) -> Cause:
    if storage.role in _NAMED and storage.name and event.action == "alloc":
        return Cause(storage.role, storage.name, "")
    if event.op < 0:
        return Cause("set-up", "", "")
    op = trace.ops[event.op]
    kind = f" ({storage.role})" if storage.role in {"scratch", "workspace"} else ""
    return Cause(op.name.removesuffix(".default") + kind, op.module, op.source)


def recorded_stream(events: Iterable[SnapshotEvent], marks: Iterable[int]) -> AllocationStream:
    """The requests in an allocator's history.

    Args:
        events: History, oldest first. A free counts when it is asked for, which is when Python lets go.
        marks: Number of requests made before each step.
    """
    written = StreamWriter()
    causes: dict[int, Cause] = {}
    for event in events:
        if event.action in {"alloc", "free_requested"} and event.nbytes:
            # Equal stacks are one object, so most of them are named once.
            cause = causes.setdefault(id(event.frames), _NO_CAUSE)
            if cause is _NO_CAUSE:
                cause = causes[id(event.frames)] = cause_of(event.frames)
            written.add(event.nbytes if event.action == "alloc" else -event.nbytes, cause)
    return written.stream(marks)


_NO_CAUSE = Cause("", "", "")
