"""Complete a target that says nothing of its inputs or its loss."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from memplan.errors import UsageError
from memplan.job.defaults import caller, first_loss
from memplan.job.inputs import batch_of
from memplan.job.source import ModelSource
from memplan.job.spec import InputSpec, JobSpec
from memplan.job.usercode import user_code
from memplan.seam.fake import FakeTensor
from memplan.seam.modes import disable_current_modes
from memplan.tracing.fitting import lightning
from memplan.tracing.inferred.candidates import facts_of, is_label
from memplan.tracing.inferred.inputs import BATCH, FoundInputs, find_inputs, needed_inputs, with_labels, written
from memplan.tracing.inferred.losses import OWN, Ran, find_loss, floats
from memplan.tracing.place import batch_tensors
from memplan.tracing.world import fake_world

Assume = Callable[[str], None]


def complete(source: ModelSource, spec: JobSpec, assume: Assume, *, loss: bool = False) -> ModelSource:
    """Work out what a target does not say, on a model of its own that is thrown away.

    ``loss``: it is known that the model's output is no loss. The target gets a batch, and where its output is none a
    loss.

    Raises:
        UsageError: The inputs cannot be found.
    """
    trains = spec.mode == "train" and source.train_step is None
    wants_loss = trains and (spec.loss is not None or (source.loss is None and (loss or source.batch is None)))
    if source.batch is not None and not wants_loss:
        return source
    with _somewhere_fake():
        with user_code("model()"):
            model = source.model().train(spec.mode == "train")
        if lightning.trains_itself(model, source, spec):
            return source
        if source.batch is None:
            source, ran = _fed(source, model, spec, assume, wants_loss=wants_loss)
        else:
            length = spec.seq_len or source.default_seq_len
            with user_code("batch()"):
                batch = source.batch(BATCH, length)
            with user_code("the model's forward"):
                output = caller(source.loss_items)(model, batch)
            inputs = [tensor for _, tensor in batch_tensors(batch)]
            has_labels = isinstance(batch, Mapping) and any(map(is_label, batch))
            ran = Ran(output=output, inputs=inputs, length=length, has_labels=has_labels)
        if wants_loss:
            source = _taught(source, model, spec, ran, assume)
    return source


def _fed(
    source: ModelSource, model: nn.Module, spec: JobSpec, assume: Assume, *, wants_loss: bool
) -> tuple[ModelSource, Ran]:
    ready = _said_by_model(model)
    if ready is not None:
        specs, how = ready
        batch = batch_of(specs)(BATCH, spec.seq_len)
        with user_code("the model's forward"):
            output = model(**batch)
        found = FoundInputs(specs=specs, length=spec.seq_len, output=output, layers={})
    else:
        facts = facts_of(model, source.arguments, spec.seq_len)
        found = find_inputs(model, facts, length_is_given=spec.seq_len is not None)
        how = ", ".join(f"{name} by {layer or type(model).__name__}" for name, layer in found.layers.items())
    if wants_loss and first_loss(found.output) is None and spec.loss is None:
        taught = with_labels(model, found)
        found = next((each for each in taught if first_loss(each.output, anywhere=True) is not None), found)
    if found.length is None and spec.seq_len is not None:
        raise UsageError("a sequence length was given, but no input of the model has one", hint="leave out --seq-len")
    shown = " ".join(f"--input {written(each)}" for each in found.specs)
    length = f", S = {found.length}" if found.length is not None else ""
    assume(f"no batch(): inputs worked out from the model are {shown}{length}{f' ({how})' if how else ''}")
    made = batch_of(found.specs)
    source = replace(
        source,
        batch=made,
        default_seq_len=found.length,
        provenance={**source.provenance, "batch": "worked-out:" + "+".join(map(written, found.specs))},
    )
    ran = Ran(
        output=found.output,
        inputs=list(made(BATCH, found.length).values()),
        length=found.length,
        has_labels=any(is_label(each.name) for each in found.specs),
    )
    return source, ran


def _said_by_model(model: nn.Module) -> tuple[tuple[InputSpec, ...], str] | None:
    """Inputs that a model carries with it: Lightning's, timm's, those of transformers and diffusers."""
    example = getattr(model, "example_input_array", None)
    if example is not None:
        return _as_inputs(model, example), "example_input_array"
    settings = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    size = settings.get("input_size") if isinstance(settings, dict) else None
    if size:
        name = needed_inputs(model)[0].name
        return (InputSpec(name=name, dtype="float32", dims=("B", *size)),), "its own default_cfg"
    try:
        dummies = getattr(model, "dummy_inputs", None)
    except Exception:  # noqa: BLE001 - a property of somebody's, which is not needed.
        return None
    if isinstance(dummies, dict) and dummies:
        return _as_inputs(model, dummies), "its own dummy_inputs"
    return None


def _as_inputs(model: nn.Module, example: Any) -> tuple[InputSpec, ...]:
    """An example as inputs: its first dimension is the batch's."""
    if not isinstance(example, dict):
        parts = example if isinstance(example, tuple | list) else (example,)
        example = dict(zip((each.name for each in needed_inputs(model)), parts, strict=False))
    return tuple(
        InputSpec(name=name, dtype=str(value.dtype).removeprefix("torch."), dims=("B", *map(int, value.shape[1:])))
        for name, value in example.items()
        if isinstance(value, torch.Tensor)
    )


def _taught(
    source: ModelSource,
    model: nn.Module,
    spec: JobSpec,
    ran: Ran,
    assume: Assume,
) -> ModelSource:
    found = find_loss(spec.loss, model, ran, BATCH)
    if found is None:
        return source
    shape = list(next(floats(ran.output)).shape)
    against = "" if found.target is None else f" against {written(found.target)}"
    reason = "--loss" if spec.loss else "no loss()"
    of_what = "the scalar in the output" if found.name == OWN else f"the output (of two samples {shape})"
    assume(f"{reason}: the loss is {found.name}{against} of {of_what}")
    make = source.batch

    def batch(batch_size: int, seq_len: int | None) -> Any:
        assert make is not None  # noqa: S101 - it was completed before.
        return found.labelled(make(batch_size, seq_len), batch_size, seq_len)

    return replace(
        source,
        batch=batch,
        loss=found,
        loss_items=(),
        provenance={
            **source.provenance,
            "loss": f"worked-out:{found.name.replace(' ', '-')}" if spec.loss is None else "--loss",
        },
    )


@contextmanager
def _somewhere_fake() -> Iterator[None]:
    """The fake world that is there, unrecorded, for what failed trials leave is no part of the job; else a new one."""
    here = torch.empty(0)
    if isinstance(here, FakeTensor):
        with disable_current_modes(), here.fake_mode:
            yield
        return
    with fake_world():
        yield
