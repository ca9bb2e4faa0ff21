"""Runs a program as it is, or a library's loop, for real, and ends it after some steps. Called in a child process."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import distributed

from memplan.errors import UsageError
from memplan.job.parallel import ALONE
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.seam.patches.world import LOADER_ITERATOR
from memplan.seam.replace import Replacement, replaced
from memplan.tracing.checkpointing import apply_checkpointing
from memplan.tracing.records import ModelPlace
from memplan.tracing.script.boundaries import Boundaries, StepRepeated
from memplan.tracing.script.main import nothing_learnt, run_as_main, surroundings
from memplan.tracing.script.model import ProgramModel
from memplan.tracing.world import iterate_here
from memplan.validate.compiled import RealCompiling
from memplan.validate.playing import Meter


class FollowedRun:
    """What trains by itself, and how far it has come; what its variables hold stays alive until it is forgotten."""

    def __init__(self, name: str, run: Callable[[], None], progress: Callable[[str], None]) -> None:
        self._name, self._run, self._progress = name, run, progress
        self._ended: BaseException | None = None
        self.done = 0
        """Steps run to their end."""
        self.seconds = 0.0
        """Their wall time."""
        self.out_of_memory = ""
        """The allocator's message, where that ended the run."""

    def play(self, meter: Meter, compiled: RealCompiling, *, steps: int, least: int, limit_seconds: float) -> None:
        """Run it until it has done its steps, or ends by itself.

        ``least`` of them run whatever the time; none begins after the limit. What it compiles it asks for itself.

        Raises:
            EstimateError: It fails, or takes no step.
        """
        del compiled
        boundaries = _RealSteps(self, meter, lambda: self._goes_on(steps, least, limit_seconds), self._progress)
        self._progress(f"running {self._name} for real")
        with _here(), surroundings(lambda _: None), boundaries.watching():
            try:
                self._run()
            except StepRepeated as error:
                # The frames of the program live on in its traceback.
                self._ended = error
        boundaries.close()
        if not self.done:
            raise nothing_learnt(self._name, boundaries)

    def _goes_on(self, steps: int, least: int, limit_seconds: float) -> bool:
        return self.done < steps and (self.done < least or self.seconds < limit_seconds)


class ProgramRun(FollowedRun):
    """A program."""

    def __init__(self, target: ScriptTarget, spec: JobSpec, progress: Callable[[str], None]) -> None:
        super().__init__(target.name, lambda: run_as_main(target), progress)
        self._spec = spec

    def play(self, meter: Meter, compiled: RealCompiling, *, steps: int, least: int, limit_seconds: float) -> None:
        """Run the program, with the plan that the job has for its model.

        Raises:
            UsageError: The program is one of several ranks, or the plan fits none of its models.
            EstimateError: As of others.
        """
        if self._spec.parallel != ALONE:
            raise UsageError(f"{self._name} runs on one rank here", hint="leave the launcher out")
        model = ProgramModel(self._plan)
        with model.watching() if self._spec.checkpoint != "none" else nullcontext():
            super().play(meter, compiled, steps=steps, least=least, limit_seconds=limit_seconds)
        model.conclude()

    def _plan(self, model: torch.nn.Module, _: ModelPlace) -> None:
        """Put a plan on the program's model from outside, as the prediction does."""
        apply_checkpointing(model, self._spec.checkpoint)


class _RealSteps(Boundaries):
    """Marks a program's steps on a meter."""

    def __init__(
        self, run: FollowedRun, meter: Meter, goes_on: Callable[[], bool], progress: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._run, self._meter, self._goes_on, self._progress = run, meter, goes_on, progress
        self._step = ExitStack()
        self._started = 0.0

    def called(self, module: torch.nn.Module) -> None:
        """Nobody asks which modules run."""

    def made(self) -> None:
        """Nobody asks which optimizers there are."""

    def begin_step(self) -> None:
        """A step begins."""
        self._progress(f"running step {self._run.done + 1}")
        self._started = time.perf_counter()
        self._step.enter_context(self._meter.step())

    def end_step(self) -> bool:
        """A step ends; is there to be another?"""
        self.close()
        self._run.seconds += time.perf_counter() - self._started
        self._run.done += 1
        return self._goes_on()

    def close(self) -> None:
        """What has begun, and did not end as a step, ends."""
        self._step.close()


@contextmanager
def _here() -> Iterator[None]:
    """One process: batches are loaded in it, and it is a rank of its own."""
    begin = distributed.init_process_group if distributed.is_available() else _nothing

    def init_process_group(*_: Any, **__: Any) -> None:
        if not distributed.is_initialized():
            begin("gloo", store=distributed.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]

    alone = (
        Replacement("torch.distributed.init_process_group", init_process_group),
        Replacement(LOADER_ITERATOR.path, iterate_here),
    )
    with replaced(alone):
        try:
            yield
        finally:
            if distributed.is_available() and distributed.is_initialized():
                distributed.destroy_process_group()


def _nothing(*_: Any, **__: Any) -> None:
    """Nothing is done."""
