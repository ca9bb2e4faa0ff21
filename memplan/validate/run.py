"""Runs a job's own loop for real and measures it. Called in a child process, because it imports the user's code."""

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import record_function

from memplan.errors import EstimateError
from memplan.job.load import load_source
from memplan.job.spec import FileTarget, JobSpec, ModuleTarget, ScriptTarget
from memplan.job.usercode import user_code
from memplan.runtime.profile.kineto import Profiled, Profiler
from memplan.tracing.fitting.loops import library_loop
from memplan.tracing.inferred.complete import complete
from memplan.tracing.prepare import build_model, make_loop
from memplan.tracing.real_device import RealDevice, attention
from memplan.validate.compiled import RealCompiling, causes, compiler_failure, compiling
from memplan.validate.cuda import CudaMeter
from memplan.validate.playing import Meter, Playing
from memplan.validate.program import FollowedRun, ProgramRun
from memplan.validate.records import AllocationStream, Cause, MeasuredRun, Peaks, RealRun
from memplan.validate.streams import StreamWriter

CPU_THREADS = 1
"""Threads on the CPU, predicted and measured: kernels take scratch for each."""


def run_here(
    spec: JobSpec,
    *,
    device: str,
    steps: int,
    traced_steps: int,
    seconds: float,
    free_before: int | None = None,
    keep: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> RealRun:
    """Build the job and run its steps on a device.

    Args:
        spec: The job.
        device: ``cpu`` or ``cuda:N``.
        steps: How many.
        traced_steps: How many of them run, and are recorded, whatever the time.
        seconds: No further step begins after so long.
        free_before: What the device had left before this process (``memplan.validate.watcher``); None: not known.
        keep: Where the memory snapshot goes (CUDA only).
        progress: Told what happens now.

    Raises:
        MemplanError: As for loading and preparing a job; running out of memory is a result, not an error.
    """
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    place = torch.device(device)
    least = min(traced_steps, steps)
    run: Playing
    if isinstance(spec.target, ScriptTarget):
        run = ProgramRun(spec.target, spec, progress)
    else:
        run = _Run(spec, place, progress)
    meter = _meter(place, free_before, least, keep)
    meter.start()
    with compiling(spec.compile) as compiled:
        try:
            run.play(meter, compiled, steps=steps, least=least, limit_seconds=seconds)
        except (EstimateError, torch.OutOfMemoryError) as error:
            if not any(isinstance(cause, torch.OutOfMemoryError) for cause in causes(error)):
                raise compiler_failure(error) or error from error
            run.out_of_memory = str(error).splitlines()[0]
    measured = meter.finish()
    return RealRun(
        measured=replace(measured, notes=(*measured.notes, *compiled.notes())),
        steps=run.done,
        seconds=run.seconds,
        out_of_memory=run.out_of_memory,
    )


def _meter(device: torch.device, free_before: int | None, recorded_steps: int, keep: Path | None) -> Meter:
    if device.type == "cpu":
        torch.set_num_threads(CPU_THREADS)
        return CpuMeter()
    return CudaMeter(device.index or 0, free_before, recorded_steps=recorded_steps, keep=keep)


class _Run:
    """A job's loop and how far it has come; it keeps the loop alive until it is forgotten itself."""

    def __init__(self, spec: JobSpec, device: torch.device, progress: Callable[[str], None]) -> None:
        self._spec, self._device, self._progress = spec, device, progress
        self._loop: Iterator[None] = iter(())
        self._run: FollowedRun | None = None
        self.done = 0
        self.seconds = 0.0
        self.out_of_memory = ""

    def play(self, meter: Meter, compiled: RealCompiling, *, steps: int, least: int, limit_seconds: float) -> None:
        """Build the job and run its steps."""
        self._progress("building the model for real")
        surroundings = RealDevice(self._device)
        source = load_source(self._spec)
        is_of_user = isinstance(self._spec.target, FileTarget | ModuleTarget)
        source = complete(source, self._spec, surroundings.assume, loss=is_of_user)
        model = build_model(source, self._spec, surroundings)
        loop = library_loop(model, source, self._spec)
        if loop is not None:
            self._run = FollowedRun(loop.name, partial(loop.fit, surroundings.kind), self._progress)
            try:
                self._run.play(meter, compiled, steps=steps, least=least, limit_seconds=limit_seconds)
            finally:
                self.done, self.seconds = self._run.done, self._run.seconds
            return
        compiled.whole(model)
        self._loop = make_loop(source, model, self._spec, surroundings)
        while self.done < steps and (self.done < least or self.seconds < limit_seconds):
            self._progress(f"running step {self.done + 1} of {steps}")
            started = time.perf_counter()
            with meter.step(), user_code(f"step {self.done + 1}"), attention(self._spec.attention, self._device):
                next(self._loop)
            self.seconds += time.perf_counter() - started
            self.done += 1


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
