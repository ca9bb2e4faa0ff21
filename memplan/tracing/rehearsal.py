"""A small job's first steps, run for real on the CPU, to hear what the program reads of its data there.

When a solver has converged, whether a loop ends early, how many elements a mask selects: only data know. Where a job is
small, they are asked. The run measures nothing; the trace afterwards answers as it did (``decisions``).
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from memplan.errors import EstimateError
from memplan.job.forked import forked
from memplan.job.noise import printed_once
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.seam.modes import TorchDispatchMode
from memplan.tracing.asking import asked_at
from memplan.tracing.fitting.loops import library_loop
from memplan.tracing.heard import LEAST_STEPS, MOST_OPS, STEPS, Answer, Heard
from memplan.tracing.host_draws import HostDraws
from memplan.tracing.inferred.complete import complete
from memplan.tracing.prepare import build_model, make_loop
from memplan.tracing.real_device import RealDevice

aten = torch.ops.aten

CPU_SECONDS = 30
"""Processor time of the run, which seldom needs more than three; some loops of kernels never end (an exponential of a
matrix that is not finite). Chosen."""
_MASK = (torch.bool, torch.uint8)


def _masks(*masks: Any) -> list[int]:
    return [int(torch.count_nonzero(mask)) for mask in masks]


READS: Mapping[Any, Callable[[tuple[Any, ...]], Sequence[Answer]]] = {
    aten.nonzero.default: lambda args: _masks(args[0]),
    aten.masked_select.default: lambda args: _masks(args[1]),
    aten.index.Tensor: lambda args: _masks(*(each for each in args[1] if each is not None and each.dtype in _MASK)),
    aten.linalg_matrix_exp.default: lambda args: (
        [float(torch.linalg.matrix_norm(args[0], 1))] if args[0].ndim == 2 else []
    ),
}
"""Ops that go by the data → what of it they go by: elements that masks select (``value_answers``), a matrix's norm
(``scratch.cpu_linear_algebra``)."""


def rehearse(load: Callable[[], ModelSource], spec: JobSpec, progress: Callable[[str], None]) -> Heard:
    """Run a job's first steps for real, with the random numbers that follow a seed of 0, and say what was read there.

    They run in a fork of this process, and leave nothing behind in it.

    Args:
        load: Loads the target.
        spec: The job.
        progress: Told what happens now.

    Raises:
        EstimateError: They fail, take too long, read nothing, or a library trains by its own loop.
    """
    progress("running a few steps for real, to ask the data")
    heard = Heard.of(forked(lambda write: _hear(load, spec, write), CPU_SECONDS))
    if heard.steps < LEAST_STEPS or not heard:
        raise EstimateError("a real run on the CPU told nothing of the data")
    return heard


def _hear(load: Callable[[], ModelSource], spec: JobSpec, write: Callable[[str], None]) -> None:
    """Run the steps, and write down what was heard in each."""
    # OpenMP's other threads are not in the fork.
    torch.set_num_threads(1)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    heard = Heard()
    listening = _Listening(heard)
    torch.manual_seed(0)
    quiet = printed_once(str(spec.target))
    with quiet, HostDraws("likely").playing(), torch.compiler.set_stance("force_eager"), listening:
        loop = _loop(load, spec)
        write(heard.last)
        while heard.steps < STEPS and listening.has_time():
            heard.begin_step()
            next(loop)
            write(heard.last)


def _loop(load: Callable[[], ModelSource], spec: JobSpec) -> Iterator[None]:
    surroundings = RealDevice(torch.device("cpu"))
    source = complete(load(), spec, surroundings.assume, loss=True)
    model = build_model(source, spec, surroundings)
    if library_loop(model, source, spec) is not None:
        raise EstimateError("a library trains it by its own loop, which is not run here")
    return make_loop(source, model, spec, surroundings)


class _Listening(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down which numbers a program reads, and how many elements its masks select."""

    def __init__(self, heard: Heard) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._heard, self._ops = heard, 0

    def has_time(self) -> bool:
        """May another step like those so far begin?"""
        return self._ops * (1 + 1 / max(self._heard.steps, 1)) <= MOST_OPS

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self._ops += 1
        if self._ops > MOST_OPS:
            raise EstimateError(f"a step of the real run is longer than {MOST_OPS} ops")
        result = func(*args, **(kwargs or {}))
        answers = [result] if isinstance(result, bool | int | float) else READS[func](args) if func in READS else ()
        if answers and (place := asked_at()) is not None:
            for answer in answers:
                self._heard.write(place, answer)
        return result
