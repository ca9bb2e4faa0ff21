"""Measures a run on the CPU: every allocation as ``torch.profiler`` reports it of PyTorch's CPU allocator."""

import re
from contextlib import AbstractContextManager
from typing import Any

from torch.profiler import record_function

from memplan.runtime.profile.kineto import Profiled, Profiler
from memplan.validate.records import AllocationStream, Cause, MeasuredRun, Peaks
from memplan.validate.streams import StreamWriter

STEP = "memplan.step"
"""Name of the profiler range around one optimizer step."""


_NODE = re.compile(r"\w+Backward\d+")
"""What the profiler calls an autograd node (``autograd::engine::evaluate_function: MmBackward0`` stands around it)."""


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

    def finish(self) -> MeasuredRun:
        """End, and say what was seen."""
        stream = profiled_stream(self._profiler.finish(STEP.__eq__))
        return MeasuredRun(peaks=Peaks(stream.peak()), stream=stream)


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
