"""Traces a job with any plan in force, and looks at its model when it is first built."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from memplan.errors import UsageError
from memplan.files.scratch import scratch_folder
from memplan.hardware.profile import GpuProfile
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.measure.collector import collector_off
from memplan.measure.measurer import trace_for
from memplan.runtime.checkpoint.records import CheckpointPlan, Fingerprint
from memplan.tracing.records import ModelPlace, Trace
from memplan.tracing.turns import every_turn

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.hooks import RemovableHandle


class _Call(NamedTuple):
    """How a module is called."""

    positional: int
    keywords: tuple[str, ...]


class Tracer:
    """Traces one job on one device.

    Without patterns it looks at what there is to plan (``plannable_blocks``).
    """

    def __init__(
        self,
        load: Callable[[], ModelSource],
        spec: JobSpec,
        profile: GpuProfile,
        *,
        patterns: Sequence[str] = (),
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.traces = 0
        """Traces made so far."""
        self.seconds = 0.0
        """Wall time of all of them."""
        self.blocks: tuple[str, ...] = ()
        """Names of the model's blocks; known after the first trace."""
        self.modules: tuple[str, ...] = ()
        """Names of all modules; known after the first trace."""
        self.alone: frozenset[str] = frozenset()
        """Those of them that nobody named and that do not repeat."""
        self._hooks: list[RemovableHandle] = []
        self._calls: set[tuple[str, _Call]] = set()
        self.fingerprint: Fingerprint | None = None
        """Of the model with all of its blocks; known after the first trace."""
        self.place: ModelPlace | None = None
        """Where a program has the model; known after the first trace."""
        self._load, self._spec, self._patterns = load, spec, patterns
        self._profile, self._progress = profile, progress

    def trace(self, plan: CheckpointPlan | None = None) -> Trace:
        """Trace the job, with a plan in force.

        Raises:
            EstimateError: User code fails, or an op has no answer on fake tensors.
            UsageError: The model has no such blocks, or the plan does not fit it.
        """
        from memplan.runtime.checkpoint.plan_file import write_plan

        started = time.perf_counter()
        with scratch_folder() as folder, collector_off():
            spec = self._spec
            if plan is not None and (plan.blocks or plan.segments):
                path = folder / "plan.json"
                write_plan(plan, path)
                spec = replace(spec, checkpoint=str(path))
            whole = replace(every_turn(spec), no_fold=True)
            watched = self._watching() if self.fingerprint is None else nullcontext()
            try:
                with watched:
                    trace = trace_for(whole, self._profile, load=self._load, seen=self._see, progress=self._progress)
            except UsageError as error:
                # Nobody typed the file of a plan that is being tried.
                error.where = None if str(folder) in (error.where or "") else error.where
                raise
        self.traces += 1
        self.seconds += time.perf_counter() - started
        return trace

    def called_alike(self, blocks: Sequence[str]) -> bool:
        """Do blocks get their arguments alike, so that one of them can be called as another is, in a segment?"""
        return len({call for name, call in self._calls if name in blocks}) < 2

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Note how the blocks are called. Hooks of all modules would leave something behind (torch 2.13)."""
        try:
            yield
        finally:
            for handle in self._hooks:
                handle.remove()
            self._hooks.clear()

    def _note(
        self, name: str, _: "nn.Module", arguments: tuple[object, ...], keywords: dict[str, object], __: object
    ) -> None:
        self._calls.add((name, _Call(len(arguments), tuple(keywords))))

    def _see(self, model: "nn.Module", place: ModelPlace | None) -> None:
        """Look at the model once, and refuse one without blocks."""
        from memplan.runtime.checkpoint.blocks import fingerprint, modules_named, repeated_blocks
        from memplan.runtime.checkpoint.plannable import existing_modules, plannable_blocks

        if self.fingerprint is not None:
            return
        blocks = tuple(modules_named(model, self._patterns)) if self._patterns else plannable_blocks(model)
        if not blocks:
            raise UsageError(f"{type(model).__name__} has no modules to plan", hint=existing_modules(model))
        self.blocks, self.place = blocks, place
        self.modules = tuple(name for name, _ in model.named_modules() if name)
        self.alone = frozenset() if self._patterns else frozenset(blocks).difference(repeated_blocks(model))
        for name in blocks:
            module = model.get_submodule(name)
            self._hooks.append(module.register_forward_hook(partial(self._note, name), with_kwargs=True))
        self.fingerprint = fingerprint(model, blocks)
