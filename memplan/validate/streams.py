"""Allocation streams of both sides in one form: of a trace, and of an allocator's history."""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence

from memplan.job.usercode import display
from memplan.snapshot.records import Frame, SnapshotEvent
from memplan.tracing.records import Event, Storage, Trace
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

    A trace that does not repeat gives no more steps than it has.
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

    A free counts when it is asked for, which is when Python lets go. Marks are numbers of requests before each step.
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


_OPERATOR = re.compile(r"\bat::_ops::(\w+)::")
_NODE = re.compile(r"\b(\w+Backward\d*|AccumulateGrad|CopySlices)::(?:apply|operator\(\))")
_KERNEL = re.compile(r"\bat::(?:native|cuda|cudnn)::[\w:]+")
_LENGTH = re.compile(r"\d+")
_LONGEST = 60
_MAKERS = frozenset({
    "empty_memory_format", "empty_strided", "empty_like", "empty", "new_empty", "new_empty_strided", "resize_",
    "_to_copy", "to_dtype", "to_device", "to_dtype_layout",
})  # fmt: skip
"""Operators that allocate on behalf of the one that called them."""
_WORKSPACE = ("Workspace", "getCurrentCUDABlasHandle")
"""Parts of the names of functions that take library workspaces (ATen/cuda/CublasHandlePool.cpp)."""
_LIBRARY = re.compile(
    r"[\\/](?:site|dist)-packages[\\/](?:torch|triton)[\\/]|[\\/]memplan[\\/](?:trace|validate|job)[\\/]"
)
"""Files that are neither the user's nor a library built on torch."""


def cause_of(frames: Sequence[Frame]) -> Cause:
    """Return the innermost operator that computes something, its autograd node, and the user's innermost line.

    Frames, innermost first, are of C++, of Python or both. Without an operator it is the innermost kernel, else the
    Python function; the line is outside torch and memplan.
    """
    operators = [name for name in _found(_OPERATOR, frames) if not name.startswith("empty")]
    computing = next((name for name in operators if name not in _MAKERS), next(iter(operators), ""))
    what = f"aten.{computing}" if computing else _inner_function(frames)
    if any(part in frame.function for frame in frames[:12] for part in _WORKSPACE):
        what += " (workspace)"
    return Cause(what, next(_found(_NODE, frames), ""), _source(frames))


def _found(pattern: re.Pattern[str], frames: Sequence[Frame]) -> Iterator[str]:
    for frame in frames:
        found = pattern.search(_readable(frame.function))
        if found:
            yield found[1] if found.re.groups else found[0]


def _readable(symbol: str) -> str:
    """A mangled C++ name (``_ZN2at4_ops2mm4callE…``) as its parts joined by colons; any other as it is."""
    if not symbol.startswith("_ZN"):
        return symbol
    parts, rest = [], symbol.removeprefix("_ZN").lstrip("KVr")
    while match := _LENGTH.match(rest):
        end = match.end() + int(match[0])
        parts.append(rest[match.end() : end])
        rest = rest[end:]
    return "::".join(parts) + "("


def _inner_function(frames: Sequence[Frame]) -> str:
    kernel = next(_found(_KERNEL, frames), "")
    python = next((f"{frame.function}()" for frame in frames if frame.file.endswith(".py")), "")
    return (kernel or python)[:_LONGEST]


def _source(frames: Sequence[Frame]) -> str:
    for frame in frames:
        if frame.file.endswith(".py") and not _LIBRARY.search(frame.file):
            return f"{display(frame.file)}:{frame.line}"
    return ""
