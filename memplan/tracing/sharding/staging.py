"""From a target's model to the pipeline stages of one rank: one micro-batch shows the chain of blocks."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from memplan.errors import UsageError
from memplan.job.defaults import caller, default_loss
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.job.usercode import user_code
from memplan.tracing import precision
from memplan.tracing.place import cast_floats
from memplan.tracing.sharding import world
from memplan.tracing.sharding.chain import BlockChain, find_chain
from memplan.tracing.sharding.context_parallel import sequence_shared
from memplan.tracing.sharding.fsdp import REDUCED_IN
from memplan.tracing.sharding.pipeline import Stage, running, split


def staged(model: nn.Module, source: ModelSource, spec: JobSpec) -> nn.Module:
    """The stages of the rank that is traced, in place of the whole model.

    Nothing of the model is placed yet. They are a ``Stage``, or a ``ModuleList`` of several.

    Raises:
        UsageError: The job cannot be a pipeline, or the model cannot be cut.
    """
    if spec.mode != "train" or source.train_step is not None:
        why = "it needs memplan's own training loop"
        raise UsageError(f"--parallel {spec.parallel}: {why}", hint="take train_step away, or pp")
    here = world.current()
    chain = _chain(model, source, spec, here)
    rank = here.mesh["pp"].get_local_rank()
    model, named = split(model, chain, spec.parallel, rank)
    here.assume("pipeline stages by parameters: " + ", ".join(f"{names[0]} … {names[-1]}" for names in named))
    return model


def each_stage(
    model: nn.Module, share: Callable[[nn.Module, JobSpec, DeviceMesh], nn.Module], spec: JobSpec, mesh: DeviceMesh
) -> nn.Module:
    """Share every stage of a rank by itself, as torchtitan does with its model parts; or the whole model."""
    if isinstance(model, nn.ModuleList) and all(isinstance(part, Stage) for part in model):
        return nn.ModuleList(share(part, spec, mesh) for part in model)
    return share(model, spec, mesh)


def _chain(model: nn.Module, source: ModelSource, spec: JobSpec, here: world.World) -> BlockChain:
    seq_len = spec.seq_len or source.default_seq_len
    autocast = precision.autocast(spec.precision, here.mesh.device_type)
    run = running(caller(source.loss_items), source.loss or default_loss, autocast)
    around = sequence_shared(spec, seq_len) if spec.parallel.context > 1 else nullcontext
    # What runs here is no part of a step: none of it is on the device.
    place, here.recorder.references.default_place = here.recorder.references.default_place, "host"
    batch = _micro_batch(source, spec, seq_len)
    with user_code("the first micro-batch"), around(batch):
        chain = find_chain(model, lambda: run(model, batch))
    here.recorder.references.default_place = place
    return _in_gathered_dtype(chain, spec)


def _micro_batch(source: ModelSource, spec: JobSpec, seq_len: int | None) -> Any:
    if source.batch is None:
        raise UsageError("the target says nothing of its inputs", hint="define batch(batch_size) or give --input")
    batch = source.batch(spec.batch_size, seq_len)
    dtype = precision.model_dtype(spec.precision)
    return batch if dtype is None else cast_floats(batch, dtype)


def _in_gathered_dtype(chain: BlockChain, spec: JobSpec) -> BlockChain:
    """FSDP, which casts what goes into blocks, comes later than this forward."""
    if spec.parallel.data == "fsdp2" and spec.precision in REDUCED_IN:
        chain.sent = [replace(each, dtype=REDUCED_IN[spec.precision]) for each in chain.sent]
    return chain
