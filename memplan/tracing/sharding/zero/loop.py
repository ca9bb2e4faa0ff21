"""The loop of a job under DeepSpeed: its engine takes model and optimizer, and steps."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from memplan.errors import UsageError
from memplan.job.optimizers import IMPLEMENTATIONS
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.tracing.loop import Parts
from memplan.tracing.records import Role
from memplan.tracing.sharding.world import current as ranks
from memplan.tracing.sharding.zero import approximate
from memplan.tracing.sharding.zero.settings import HALF, STAGES, is_approximated, settings
from memplan.tracing.sharding.zero.world import current
from memplan.tracing.surroundings import Surroundings

LOOP = (
    "the loop is forward, loss, engine.backward(loss), engine.step(); "
    "output and loss live until the next forward rebinds them"
)
PARTITIONED = "parameters are partitioned while the model is built (deepspeed.zero.Init), so no GPU holds all of them"
MIXED = "DeepSpeed's mixed precision: weights in half precision, fp32 master weights in the shards, no autocast"
FUSED = "DeepSpeed's FusedAdam, or CPUAdam where offloaded: the states of torch's fused Adam, and no temporaries"
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_HELD: dict[str, Role] = {
    "single_partition_of_fp32_groups": "optimizer_state",
    "fp32_partitioned_groups_flat": "optimizer_state",
    "fp16_partitioned_groups_flat": "parameter",
    "grad_partitions_flat_buffer": "gradient",
    "fp32_groups_flat": "optimizer_state",
    "fp16_groups_flat": "parameter",
    "fp32_groups_flat_partition": "optimizer_state",
    "bf16_groups_flat": "parameter",
    "fp32_groups_gradients_flat": "gradient",
}
"""What DeepSpeed's optimizers keep from the start, by the name of their attribute (stage_1_and_2.py, stage3.py,
fused_optimizer.py, bf16_optimizer.py)."""


def under_deepspeed(source: ModelSource, spec: JobSpec, surroundings: Surroundings) -> JobSpec:
    """The job as DeepSpeed runs it: its own mixed precision and its own Adam.

    Raises:
        UsageError: It is none that DeepSpeed's engine steps.
    """
    if surroundings.kind != "cuda":
        raise UsageError(f"--parallel {spec.parallel} is traced for GPUs of CUDA only")
    if spec.mode != "train":
        raise UsageError(f"--parallel {spec.parallel} shards training, not --mode {spec.mode}")
    if source.train_step is not None:
        hint = "take train_step away to have the loop of DeepSpeed's engine"
        raise UsageError(f"--parallel {spec.parallel} would change nothing: the target has a train_step", hint=hint)
    half = HALF.get(spec.precision)
    if half is not None and half != spec.precision:
        surroundings.assume(MIXED)
        spec = replace(spec, precision="bf16" if half == "bf16" else "fp16")
    named = spec.optimizer or ("adamw" if source.optimizer is None else None)
    if named in {"adam", "adamw"} and spec.optimizer_impl == "auto" and "fused" in IMPLEMENTATIONS[named]:
        surroundings.assume(FUSED)
        spec = replace(spec, optimizer=named, optimizer_impl="fused")
    return spec


def training(parts: Parts, spec: JobSpec, surroundings: Surroundings) -> Iterator[None]:
    """Forward, loss, ``engine.backward``, ``engine.step``; yields after every optimizer step.

    The model lies in host memory; the spec is as ``under_deepspeed`` gives it.
    """
    surroundings.assume(LOOP)
    if is_approximated(spec.parallel):
        return approximate.training(parts, spec, surroundings)
    return _steps(parts, _engine(parts, spec, surroundings))


def _steps(parts: Parts, engine: Any) -> Iterator[None]:
    batch = output = loss = None
    while True:
        for _ in parts.micro_batches():
            # ``for batch in loader`` rebinds the name before the new batch is moved to the device.
            batch = None
            batch = parts.next_batch()
            output = parts.call(engine, batch)
            loss = parts.loss(output, batch)
            engine.backward(loss)
            engine.step()
        yield


def _engine(parts: Parts, spec: JobSpec, surroundings: Surroundings) -> Any:
    """Hand model and optimizer to DeepSpeed, as ``deepspeed.initialize`` takes them."""
    world, model = current(), parts.model
    document = settings(spec, world.directory)
    half = HALF.get(spec.precision)
    if half is not None:
        model.to(_DTYPES[half])
    if STAGES[spec.parallel.data] == STAGES["zero3"]:
        world.library.zero.Init(module=model, config_dict_or_path=document)
        _move_buffers(model)
        surroundings.assume(PARTITIONED)
    engine, *_ = world.library.initialize(model=model, optimizer=parts.optimizer, config=document)
    surroundings.place_model(engine.module)
    name_parts(engine)
    return engine


def _move_buffers(model: torch.nn.Module) -> None:
    """``zero.Init`` makes them on the device in the first place."""
    for module in model.modules():
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else buffer.cuda()


def name_parts(engine: Any) -> None:
    """Tell what DeepSpeed's own tensors are."""
    claim = ranks().recorder.references.claim
    for attribute, role in _HELD.items():
        held = getattr(engine.optimizer, attribute, ())
        for tensor in (held,) if isinstance(held, torch.Tensor) else held or ():
            # None stands for what is on a disk.
            if tensor is not None:
                claim(tensor, role=role, of=tensor)
    for parameter in engine.module.parameters():
        # Partitions of frozen parameters, which the optimizer does not know.
        if isinstance(partition := getattr(parameter, "ds_tensor", None), torch.Tensor):
            claim(partition, role="parameter", of=parameter)
