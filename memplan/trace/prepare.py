"""From a loaded target to the parts of its loop: model built, cast, checkpointed and placed; optimizer; batches."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from memplan.errors import UsageError
from memplan.job.defaults import call_model, default_loss
from memplan.job.optimizers import make_optimizer
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.job.usercode import user_code
from memplan.trace import loop, precision
from memplan.trace.checkpointing import apply_checkpointing, described
from memplan.trace.generation import generator
from memplan.trace.place import cast_floats
from memplan.trace.surroundings import Surroundings


def build_model(source: ModelSource, spec: JobSpec, surroundings: Surroundings) -> torch.nn.Module:
    """Build the model and make of it what the options say; nothing is placed yet."""
    with user_code("model()"):
        model = source.model()
    dtype = precision.model_dtype(spec.precision)
    if dtype is not None:
        model = model.to(dtype)
    model.train(spec.mode == "train")
    if spec.checkpoint != "none" and spec.mode == "train":
        names = apply_checkpointing(model, spec.checkpoint, surroundings.recomputing)
        surroundings.assume(described(names))
    return model


def make_loop(source: ModelSource, model: torch.nn.Module, spec: JobSpec, surroundings: Surroundings) -> Iterator[None]:
    """Place the model and set up its loop, which yields after every step."""
    surroundings.place_model(model)
    parts = _parts(source, model, spec, surroundings)
    if spec.mode != "train":
        return loop.inference(parts)
    if source.train_step is not None:
        _check_own_step(spec)
        return loop.own_steps(parts, source.train_step)
    surroundings.assume(LOOP)
    return loop.training(parts)


def _check_own_step(spec: JobSpec) -> None:
    """What shapes only memplan's own loop must not look as if it had shaped the user's."""
    given = {
        "--precision": spec.precision.endswith("-mixed"),
        "--grad-accum": spec.grad_accum != 1,
        "--clip-grad-norm": spec.clip_grad_norm is not None,
    }
    useless = ", ".join(option for option, is_given in given.items() if is_given)
    if useless:
        raise UsageError(f"{useless} would change nothing: the target has a train_step", hint=_OWN_STEP)


_OWN_STEP = "do it inside train_step, or take train_step away to have memplan's own loop"

LOOP = (
    "the loop is forward, loss, backward, optimizer.step(), zero_grad(); "
    "output and loss live until the next forward rebinds them"
)


def _parts(source: ModelSource, model: torch.nn.Module, spec: JobSpec, surroundings: Surroundings) -> loop.Parts:
    trains, device = spec.mode == "train", surroundings.kind
    return loop.Parts(
        model=model,
        optimizer=_optimizer(source, model, spec) if trains else None,
        next_batch=lambda: _next_batch(source, spec, surroundings),
        call=_call(source, model, spec, surroundings),
        loss=source.loss or default_loss,
        autocast=precision.autocast(spec.precision, device),
        scaler=precision.scaler(spec.precision, device) if trains else None,
        accumulate=spec.grad_accum,
        clip_norm=spec.clip_grad_norm,
    )


def _call(source: ModelSource, model: torch.nn.Module, spec: JobSpec, surroundings: Surroundings) -> Callable[..., Any]:
    if spec.mode != "generate":
        return call_model
    if source.generate is None:
        count = spec.max_new_tokens
        surroundings.assume(f"generate() decodes {count} tokens greedily, and no sequence ends before the last")
    return generator(source, model, spec.max_new_tokens)


def _optimizer(source: ModelSource, model: torch.nn.Module, spec: JobSpec) -> torch.optim.Optimizer:
    if spec.optimizer is None and source.optimizer is not None:
        if spec.optimizer_impl != "auto":
            what = "--optimizer-impl would change nothing: the target makes its own optimizer"
            raise UsageError(what, hint="pass foreach= or fused= in optimizer(), or give --optimizer too")
        with user_code("optimizer()"):
            return source.optimizer(model.parameters())
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trainable:
        raise UsageError("no parameter of the model requires a gradient", hint="use --mode inference")
    return make_optimizer(spec.optimizer or "adamw", trainable, impl=spec.optimizer_impl)


def _next_batch(source: ModelSource, spec: JobSpec, surroundings: Surroundings) -> Any:
    make = source.batch
    if make is None:
        raise UsageError("the target says nothing of its inputs", hint="define batch(batch_size) or give --input")

    def batch() -> Any:
        with user_code("batch()"):
            made = make(spec.batch_size, spec.seq_len or source.default_seq_len)
        dtype = precision.model_dtype(spec.precision)
        return made if dtype is None else cast_floats(made, dtype)

    return surroundings.place_batch(batch)
