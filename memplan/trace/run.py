"""Trace a job: build its model in the fake world, run its loop until the step repeats, and hand over the record."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch

from memplan.errors import EstimateError
from memplan.job.defaults import call_model, default_loss
from memplan.job.optimizers import make_optimizer
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.job.usercode import user_code
from memplan.trace import loop, precision
from memplan.trace.nested import tensors_in
from memplan.trace.checkpointing import apply_checkpointing, described
from memplan.trace.generation import generator
from memplan.trace.place import cast_floats, place_batch, place_model
from memplan.trace.recorder import Recorder
from memplan.trace.records import DeviceTraits, ModelFacts, StepRange, Trace
from memplan.trace.semantics import semantics
from memplan.trace.values import Values
from memplan.trace.world import fake_world

_LEAST_STEPS = 2
_MOST_STEPS = 5
"""A step that has not repeated by then grows (a leak, a cache); the report says so."""


def trace_job(
    load: Callable[[], ModelSource],
    spec: JobSpec,
    device: DeviceTraits,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> Trace:
    """Run a job's steps on fake tensors and record them.

    Args:
        load: Loads the target; called in the fake world, since user modules may build tensors when imported.
        spec: The job.
        device: What the step is traced for.
        progress: Told, in a few words, what happens now.

    Returns:
        The trace: set-up, then at least two steps, up to the first that repeats.

    Raises:
        EstimateError: User code fails, or an op has no answer on fake tensors.
    """
    started = time.perf_counter()
    values = Values(worst_case=spec.data_dependent == "worst")
    with ExitStack() as stack:
        stack.enter_context(fake_world())
        means = stack.enter_context(semantics(device, spec.attention))
        recorder = Recorder(device, means.scratch_rules, means.place_rule, values)
        means.ask_host(recorder.is_host)
        stack.enter_context(recorder.watching())
        recorder.default_place = "device" if device.kind == "cpu" else "host"
        progress("building the model")
        source = load()
        model = _build(source, spec)
        _checkpoint(recorder, model, spec)
        steps = _run(_parts(recorder, source, model, spec, device), spec, recorder, progress)
        names = {op.name for op in recorder.ops}
        # Still inside the fake world: there the garbage collector is off, which walks all these records otherwise.
        return Trace(
            device=device,
            model=_facts(model),
            ops=tuple(recorder.ops),
            storages=recorder.ledger.storages(),
            events=tuple(recorder.ledger.events),
            steps=tuple(steps.ranges),
            repeats=steps.repeats,
            seq_len=spec.seq_len or source.default_seq_len,
            provenance=dict(source.provenance),
            assumptions=(*values.assumptions, *means.assumptions(names)),
            not_modelled=tuple(means.not_modelled(names)),
            trace_seconds=time.perf_counter() - started,
            graph=recorder.step_graph.graph,
            constants=recorder.step_graph.constants,
        )


def _build(source: ModelSource, spec: JobSpec) -> torch.nn.Module:
    dtype = precision.model_dtype(spec.precision)
    with user_code("model()"):
        model = source.model()
    if dtype is not None:
        model = model.to(dtype)
    return model.train(spec.mode == "train")


def _checkpoint(recorder: Recorder, model: torch.nn.Module, spec: JobSpec) -> None:
    if spec.checkpoint != "none" and spec.mode == "train":
        names = apply_checkpointing(model, spec.checkpoint, recorder.attribution.within)
        recorder.values.assume(described(names))


def _facts(model: torch.nn.Module) -> ModelFacts:
    parameters = list(model.parameters())
    return ModelFacts(
        parameters=sum(parameter.numel() for parameter in parameters),
        trainable_parameters=sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
    )


def _parts(
    recorder: Recorder, source: ModelSource, model: torch.nn.Module, spec: JobSpec, device: DeviceTraits
) -> loop.Parts:
    recorder.attribution.name_modules(model)
    place_model(recorder, model)
    optimizer = _optimizer(source, model, spec) if spec.mode == "train" else None
    return loop.Parts(
        model=model,
        optimizer=optimizer,
        next_batch=lambda: _next_batch(recorder, source, spec),
        call=_call(recorder, source, model, spec),
        loss=source.loss or default_loss,
        train_step=source.train_step if spec.mode == "train" else None,
        autocast=precision.autocast(spec.precision, device.kind),
        scaler=precision.scaler(spec.precision, device.kind) if spec.mode == "train" else None,
        accumulate=spec.grad_accum,
        clip_norm=spec.clip_grad_norm,
    )


def _call(recorder: Recorder, source: ModelSource, model: torch.nn.Module, spec: JobSpec) -> Callable[..., Any]:
    if spec.mode != "generate":
        return call_model
    if source.generate is None:
        count = spec.max_new_tokens
        recorder.values.assume(f"generate() decodes {count} tokens greedily, and no sequence ends before the last")
    return generator(source, model, spec.max_new_tokens)


def _optimizer(source: ModelSource, model: torch.nn.Module, spec: JobSpec) -> torch.optim.Optimizer:
    if spec.optimizer is None and source.optimizer is not None:
        with user_code("optimizer()"):
            return source.optimizer(model.parameters())
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return make_optimizer(spec.optimizer or "adamw", trainable, impl=spec.optimizer_impl)


def _next_batch(recorder: Recorder, source: ModelSource, spec: JobSpec) -> Any:
    """Make a batch as a data loader does (on the host, outside the recorded step) and place it on the device."""
    assert source.batch is not None
    recorder.attribution.begin_forward()
    recording, recorder.recording = recorder.recording, False
    with user_code("batch()"):
        batch = source.batch(spec.batch_size, spec.seq_len or source.default_seq_len)
    dtype = precision.model_dtype(spec.precision)
    if dtype is not None:
        batch = cast_floats(batch, dtype)
    recorder.recording = recording
    place_batch(recorder, batch)
    return batch


class _Steps:
    """Runs a loop's steps and notes where each begins and ends."""

    def __init__(self, recorder: Recorder) -> None:
        self.ranges: list[StepRange] = []
        self.repeats = False
        self._recorder = recorder

    def run(self, steps: Iterator[None]) -> None:
        """One step, recorded; then compare what it leaves behind with what the step before left."""
        first_op, first_event = len(self._recorder.ops), len(self._recorder.ledger.events)
        before = self._recorder.ledger.live_sizes()
        self._recorder.recording = True
        self._advance(steps)
        self._recorder.recording = False
        mark_optimizer_state(self._recorder)
        self.repeats = self._recorder.ledger.live_sizes() == before
        self.ranges.append(
            StepRange(
                first_op=first_op,
                end_op=len(self._recorder.ops),
                first_event=first_event,
                end_event=len(self._recorder.ledger.events),
            )
        )

    def _advance(self, steps: Iterator[None]) -> None:
        try:
            with user_code(f"step {len(self.ranges) + 1}"):
                next(steps)
        except EstimateError as error:
            module = self._recorder.attribution.failing_module(error.__cause__ or error)
            if error.where is not None or module is None:
                raise
            raise EstimateError(error.what, where=f"module {module}", hint=error.hint) from error.__cause__


def _run(parts: loop.Parts, spec: JobSpec, recorder: Recorder, progress: Callable[[str], None]) -> _Steps:
    if parts.train_step is not None:
        iterator = loop.own_steps(parts)
    else:
        iterator = loop.training(parts) if spec.mode == "train" else loop.inference(parts)
    steps = _Steps(recorder)
    while len(steps.ranges) < _LEAST_STEPS or (not steps.repeats and len(steps.ranges) < _MOST_STEPS):
        progress(f"tracing step {len(steps.ranges) + 1}")
        steps.run(iterator)
    return steps


def mark_optimizer_state(recorder: Recorder) -> None:
    """Tell which storages are optimizer state, and of which parameter: those that the optimizers seen stepping hold."""
    for optimizer in recorder.attribution.optimizers:
        for parameter, state in optimizer.state.items():
            for tensor in tensors_in(list(state.values()) if isinstance(state, dict) else []):
                recorder.claim(tensor, role="optimizer_state", of=parameter)
