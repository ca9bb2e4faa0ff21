"""Measures a run on the CPU: every allocation as ``torch.profiler`` reports it of PyTorch's CPU allocator.

oneDNN's scratchpads and reordered tensors pass through that allocator too; memory of other libraries does not.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from torch.profiler import ProfilerActivity, profile, record_function

from memplan.validate.records import AllocationStream, Cause, Measured, Peaks
from memplan.validate.streams import StreamWriter

STEP = "memplan.step"
"""Name of the profiler range around one optimizer step."""


_NODE = re.compile(r"\w+Backward\d+")
"""What the profiler calls an autograd node (``autograd::engine::evaluate_function: MmBackward0`` stands around it)."""


class ProfiledEvent(NamedTuple):
    """One allocation or free."""

    nanoseconds: int
    """When."""
    address: int
    """Where."""
    nbytes: int
    """How much; negative for a free."""
    around: tuple[str, ...]
    """Names of the profiler's ranges around it, outermost first."""


class Profiled(NamedTuple):
    """A profiled run."""

    events: list[ProfiledEvent]
    """In order of time."""
    starts: list[int]
    """When each step began, in nanoseconds."""
    ends: list[int]
    """When each step ended."""


class Profiler:
    """Starts and ends the profiling of a run."""

    def __init__(self) -> None:
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)

    def start(self) -> None:
        """Begin."""
        with _without_stderr():
            self._profile.start()

    def finish(self, *, step: str = STEP) -> Profiled:
        """End, and collect what was seen; ``step`` is the name of the ranges around steps."""
        with _without_stderr():
            self._profile.stop()
        results: Any = self._profile.profiler.kineto_results  # type: ignore[union-attr]  # there is one by now
        ranges = [event for event in results.events() if event.name() == step]
        return Profiled(
            # The walk is not in order of time; the sort is stable, so equal times keep the profiler's own sequence.
            events=sorted(_allocations(results.experimental_event_tree()), key=lambda event: event.nanoseconds),
            starts=sorted(event.start_ns() for event in ranges),
            ends=sorted(event.start_ns() + event.duration_ns() for event in ranges),
        )


class CpuMeter:
    """Watches the CPU's allocator from before the model is built to the end of the run."""

    def __init__(self) -> None:
        self._profiler = Profiler()

    def start(self) -> None:
        """Begin."""
        self._profiler.start()

    def step(self) -> AbstractContextManager[Any]:
        """The context of one step."""
        return record_function(STEP)

    def finish(self) -> Measured:
        """End, and say what was seen."""
        stream = profiled_stream(self._profiler.finish())
        return Measured(peaks=Peaks(stream.peak()), stream=stream)


@contextmanager
def _without_stderr() -> Iterator[None]:
    """Some builds of torch's profiler announce its start and stop on the standard error, from C++."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _allocations(roots: list[Any]) -> Iterator[ProfiledEvent]:
    """Every allocator event in a tree of profiler events."""
    stack: list[tuple[Any, tuple[str, ...]]] = [(root, ()) for root in roots]
    while stack:
        node, around = stack.pop()
        if str(node.tag).endswith("Allocation"):
            fields = node.typed[1]
            yield ProfiledEvent(node.start_time_ns, fields.ptr, fields.alloc_size, around)
        else:
            stack.extend((child, (*around, node.name)) for child in node.children)


def profiled_stream(run: Profiled) -> AllocationStream:
    """The events of a profiled run, with the marks of its steps."""
    written, marks, starts = StreamWriter(), [], list(run.starts)
    for event in run.events:
        while starts and event.nanoseconds >= starts[0]:
            marks.append(len(written))
            starts.pop(0)
        if event.nbytes:
            written.add(event.nbytes, _cause(event.around))
    return written.stream([*marks, *[len(written)] * len(starts)])


def _cause(around: tuple[str, ...]) -> Cause:
    """The innermost operator, and the autograd node that it runs for."""
    what = next((name for name in reversed(around) if name.startswith("aten::") and "empty" not in name), "")
    node = next((name for name in reversed(around) if _NODE.fullmatch(name)), "")
    return Cause(what.replace("aten::", "aten."), node, "")
