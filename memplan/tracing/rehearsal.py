"""A small job's first steps, run for real on the CPU, to hear what the program reads of its data there.

When a solver has converged, whether a loop ends early, how many elements a mask selects: only data know. Where a job is
small, they are asked. The run measures nothing; the trace afterwards answers as it did (``decisions``).
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from memplan.errors import EstimateError
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.job.usercode import forgotten_modules, user_code
from memplan.seam.modes import TorchDispatchMode
from memplan.tracing.decisions import asked_at
from memplan.tracing.fitting.loops import library_loop
from memplan.tracing.heard import LEAST_STEPS, MOST_OPS, STEPS, Heard
from memplan.tracing.host_draws import HostDraws
from memplan.tracing.inferred.complete import complete
from memplan.tracing.prepare import build_model, make_loop
from memplan.tracing.real_device import RealDevice

aten = torch.ops.aten

_MASK = (torch.bool, torch.uint8)
MASKS: Mapping[Any, Callable[[tuple[Any, ...]], list[Any]]] = {
    aten.nonzero.default: lambda args: [args[0]],
    aten.masked_select.default: lambda args: [args[1]],
    aten.index.Tensor: lambda args: [each for each in args[1] if each is not None and each.dtype in _MASK],
}
"""Ops that select by masks, and which of their arguments may be one (``value_answers``)."""


def rehearse(load: Callable[[], ModelSource], spec: JobSpec, progress: Callable[[str], None]) -> Heard:
    """Run a job's first steps for real, with the random numbers that follow a seed of 0, and say what was read there.

    Args:
        load: Loads the target.
        spec: The job.
        progress: Told what happens now.

    Raises:
        UsageError: The options do not fit the target.
        EstimateError: User code fails, is longer than ``MOST_OPS`` or reads nothing, or a library has its own loop.
    """
    heard = Heard()
    listening = _Listening(heard)
    with _apart(), torch.compiler.set_stance("force_eager"), forgotten_modules(), listening:
        progress("asking the data: building the model for real")
        loop = _loop(load, spec)
        while heard.steps < STEPS and listening.has_time():
            progress(f"asking the data: running step {heard.steps + 1} for real")
            heard.begin_step()
            with user_code(f"step {heard.steps}"):
                next(loop)
    if heard.steps < LEAST_STEPS:
        raise EstimateError(f"a step of the real run is longer than {MOST_OPS} ops")
    if not heard:
        raise EstimateError("nothing was read of the data")
    return heard


def _loop(load: Callable[[], ModelSource], spec: JobSpec) -> Iterator[None]:
    surroundings = RealDevice(torch.device("cpu"))
    source = complete(load(), spec, surroundings.assume, loss=True)
    model = build_model(source, spec, surroundings)
    if library_loop(model, source, spec) is not None:
        raise EstimateError("a library trains it by its own loop, which is not run here")
    return make_loop(source, model, spec, surroundings)


@contextmanager
def _apart() -> Iterator[None]:
    """A run that sees no GPU, draws on the host what its trace draws, and leaves random numbers as it found them."""
    with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": ""}), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        with HostDraws("likely").playing():
            yield


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
        answers = [result] if isinstance(result, bool | int | float) else []
        answers += [int(torch.count_nonzero(mask)) for mask in (MASKS[func](args) if func in MASKS else ())]
        if answers and (place := asked_at()) is not None:
            for answer in answers:
                self._heard.write(place, answer)
        return result
