"""From a loaded target to the parts of its loop: model built, cast, checkpointed and placed; optimizer; batches."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from memplan.errors import UsageError
from memplan.job.defaults import caller, default_loss
from memplan.job.optimizers import make_optimizer
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec, Precision
from memplan.job.usercode import user_code
from memplan.tracing import in_backward, loop, precision, replay_buffer
from memplan.tracing.adapted import adapt
from memplan.tracing.checkpointing import apply_checkpointing, described
from memplan.tracing.generation import generator
from memplan.tracing.inferred.losses import unlabelled
from memplan.tracing.parameter_kinds import optimizer_groups
from memplan.tracing.place import cast_floats
from memplan.tracing.saved import saving
from memplan.tracing.script.model_place import SeenModel
from memplan.tracing.sharding.zero.settings import is_zero
from memplan.tracing.surroundings import Surroundings


def build_model(
    source: ModelSource, spec: JobSpec, surroundings: Surroundings, seen: SeenModel | None = None
) -> torch.nn.Module:
    """Build the model, show it to who asks, and make of it what the options say; nothing is placed yet."""
    with user_code("model()"):
        model = source.model()
    if seen is not None:
        seen(model, None)
    dtype = precision.model_dtype(spec.precision)
    if dtype is not None:
        model = model.to(dtype)
    model = adapt(model, source, spec, surroundings).train(spec.mode == "train")
    if spec.checkpoint != "none" and spec.mode == "train":
        names = apply_checkpointing(model, spec.checkpoint, surroundings.recomputing)
        surroundings.assume(described(names))
    return model


def make_loop(source: ModelSource, model: torch.nn.Module, spec: JobSpec, surroundings: Surroundings) -> Iterator[None]:
    """Place the model and set up its loop, which yields after every step."""
    if spec.replay_buffer:
        replay_buffer.keep(_loaded(source, spec), spec, surroundings)
    if is_zero(spec.parallel):
        from memplan.tracing.sharding.zero import loop as deepspeed

        spec = deepspeed.under_deepspeed(source, spec, surroundings)
        if spec.keep_gradients:
            surroundings.assume("DeepSpeed's engine clears gradients by its own rules, --keep-gradients or not")
        return deepspeed.training(_parts(source, model, spec, surroundings), spec, surroundings)
    surroundings.place_model(model)
    parts = _parts(source, model, spec, surroundings)
    if spec.mode != "train":
        return loop.inference(parts)
    if source.train_step is not None:
        _check_own_step(source, spec)
        return loop.own_steps(parts, source.train_step)
    if spec.parallel.pipeline > 1:
        from memplan.tracing.sharding import pipeline_loop

        return pipeline_loop.training(parts, spec.parallel)
    surroundings.assume(LOOP)
    return loop.training(parts)


def _check_own_step(source: ModelSource, spec: JobSpec) -> None:
    """What shapes only memplan's own loop must not look as if it had shaped the user's."""
    given = {
        "--precision": _autocast_precision(source, spec).endswith("-mixed"),
        "--grad-accum": spec.grad_accum != 1,
        "--clip-grad-norm": spec.clip_grad_norm is not None,
        "--parallel cp": spec.parallel.context > 1 and source.parallelize is None,
        "--keep-gradients": spec.keep_gradients,
        "--optimizer-in-backward": spec.optimizer_in_backward,
        "--offload-activations": spec.offload_activations,
        "--compress-activations": spec.compress_activations != "none",
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
        optimizer=_updates(source, model, spec, surroundings) if trains else None,
        next_batch=lambda: _next_batch(source, spec, surroundings),
        call=_call(source, model, spec, surroundings),
        loss=source.loss or default_loss,
        autocast=precision.autocast(_autocast_precision(source, spec), device),
        scaler=precision.scaler(spec.precision, device) if trains else None,
        accumulate=spec.grad_accum,
        micro_batches=lambda: surroundings.micro_batches(spec),
        clip_norm=spec.clip_grad_norm,
        around=_around(source, spec),
        unreduced=model.no_sync if isinstance(model, DistributedDataParallel) else nullcontext,
    )


def _around(source: ModelSource, spec: JobSpec) -> Callable[[Any], AbstractContextManager[Any]]:
    if spec.parallel.context == 1 or spec.mode != "train" or source.parallelize is not None:
        return nullcontext
    from memplan.tracing.sharding.context_parallel import sequence_shared

    return sequence_shared(spec, spec.seq_len or source.default_seq_len)


def _autocast_precision(source: ModelSource, spec: JobSpec) -> Precision:
    """FSDP's own mixed precision casts parameters and inputs, and needs no autocast."""
    casts_itself = spec.parallel.data in {"fsdp1", "fsdp2"} and source.parallelize is None
    return "fp32" if casts_itself else spec.precision


def _call(source: ModelSource, model: torch.nn.Module, spec: JobSpec, surroundings: Surroundings) -> Callable[..., Any]:
    call = unlabelled(caller(source.loss_items, surroundings.called))
    if spec.mode == "train" and source.train_step is None:
        return saving(call, spec, surroundings.kind)
    if spec.mode != "generate":
        return call
    if source.generate is None:
        count = spec.max_new_tokens
        surroundings.assume(f"generate() decodes {count} tokens greedily, and no sequence ends before the last")
        if spec.kv_block_size is not None:
            surroundings.assume(IN_BLOCKS)
    elif spec.kv_block_size is not None:
        what = "--kv-block-size would change nothing: the target's own generate() keeps its cache to itself"
        raise UsageError(what, hint="take generate away to have that of transformers")
    return generator(source, model, spec.max_new_tokens, cached=surroundings.cached)


IN_BLOCKS = (
    "a cache in blocks is a what-if: the peak has transformers' own tensors; layers with a window keep the blocks that "
    "it touches, once the prompt has passed"
)


def _updates(source: ModelSource, model: torch.nn.Module, spec: JobSpec, surroundings: Surroundings) -> Any:
    """What updates the weights: an optimizer, or what stands in its place."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not spec.optimizer_in_backward or source.train_step is not None:
        return _optimizer(source, model.parameters(), spec, surroundings)
    in_backward.check(spec)
    return in_backward.InBackward(trainable, lambda parameters: _optimizer(source, parameters, spec, surroundings))


def _optimizer(
    source: ModelSource, parameters: Iterable[torch.nn.Parameter], spec: JobSpec, surroundings: Surroundings
) -> Any:
    """What ``_made_optimizer`` makes; with ``--keep-gradients``, whoever clears its gradients leaves them in place."""
    made = _made_optimizer(source, parameters, spec, surroundings)
    for optimizer in loop.optimizers_of(made) if spec.keep_gradients else ():
        optimizer.zero_grad = partial(optimizer.zero_grad, set_to_none=False)
    return made


def _made_optimizer(
    source: ModelSource, parameters: Iterable[torch.nn.Parameter], spec: JobSpec, surroundings: Surroundings
) -> torch.optim.Optimizer:
    if spec.optimizer is None and source.optimizer is not None:
        if spec.optimizer_impl != "auto":
            what = "--optimizer-impl would change nothing: the target makes its own optimizer"
            raise UsageError(what, hint="pass foreach= or fused= in optimizer(), or give --optimizer too")
        with user_code("optimizer()"):
            return source.optimizer(parameters)
    trainable: list[torch.Tensor] = [parameter for parameter in parameters if parameter.requires_grad]
    if not trainable:
        raise UsageError("no parameter of the model requires a gradient", hint="use --mode inference")
    made = make_optimizer(spec.optimizer or "adamw", optimizer_groups(trainable), impl=spec.optimizer_impl)
    surroundings.given(made)
    return made


def _next_batch(source: ModelSource, spec: JobSpec, surroundings: Surroundings) -> Any:
    def batch() -> Any:
        made = _loaded(source, spec)
        surroundings.loaded(made)
        dtype = precision.model_dtype(spec.precision)
        return made if dtype is None else cast_floats(made, dtype)

    return surroundings.place_batch(batch)


def _loaded(source: ModelSource, spec: JobSpec) -> Any:
    """A batch as a data loader hands it over."""
    if source.batch is None:
        raise UsageError("the target says nothing of its inputs", hint="define batch(batch_size) or give --input")
    with user_code("batch()"):
        return source.batch(spec.batch_size * spec.parallel.step_batches, spec.seq_len or source.default_seq_len)
