"""FSDP1: ``FullyShardedDataParallel`` around every repeated block and the whole."""

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from memplan.errors import UsageError
from memplan.job.spec import JobSpec, Precision
from memplan.runtime.checkpoint.blocks import repeated_blocks
from memplan.tracing.attribution import INSIDE_FSDP
from memplan.tracing.sharding import world
from memplan.tracing.sharding.fsdp import REDUCED_IN, data_mesh


def wrap(model: nn.Module, spec: JobSpec, mesh: DeviceMesh) -> nn.Module:
    """Wrap a model in FSDP1, as accelerate does; its parameters move from the host to the device block by block.

    Raises:
        UsageError: It is asked for what FSDP1 does not do.
    """
    parallel = spec.parallel
    if mesh.device_type == "cpu":
        raise UsageError("FSDP1 needs a GPU", where="--parallel", hint="fsdp=N shards on the CPU too")
    if parallel.reshard not in (True, False):
        raise UsageError("FSDP1 shards gathered parameters again over all ranks or not at all", where="--parallel")
    kinds = {type(model.get_submodule(name)) for name in repeated_blocks(model)}
    here = world.current()
    names = " and ".join(sorted(kind.__name__ for kind in kinds))
    units = f"each {names} and the rest" if kinds else "the whole model"
    here.assume(f"FullyShardedDataParallel around {units}, with use_orig_params and accelerate's mixed precision")
    wrapped = FullyShardedDataParallel(
        model,
        process_group=data_mesh(mesh).get_group(),
        auto_wrap_policy=ModuleWrapPolicy(kinds) if kinds else None,
        sharding_strategy=ShardingStrategy.FULL_SHARD if parallel.reshard else ShardingStrategy.SHARD_GRAD_OP,
        cpu_offload=CPUOffload(offload_params=True) if parallel.offload else None,
        mixed_precision=_mixed(spec.precision),
        device_id=torch.cuda.current_device() if mesh.device_type == "cuda" else None,
        use_orig_params=True,
    )
    for name, parameter in wrapped.named_parameters():
        here.recorder.references.adopt(parameter, role="parameter", name=name.replace(INSIDE_FSDP, ""), moves=False)
    return wrapped


def is_wrapped(model: nn.Module) -> bool:
    """Has the target wrapped its model, or a part of it, itself?"""
    return any(isinstance(module, FullyShardedDataParallel) for module in model.modules())


def as_wrapped(model: nn.Module, spec: JobSpec) -> nn.Module:
    """A model that its target has wrapped, as it is: over all ranks, in the target's own way.

    Raises:
        UsageError: Ranks are to share it in other ways, too.
    """
    parallel = spec.parallel
    if parallel.ranks > parallel.shards * parallel.replicas:
        what = "the target wraps its model in FullyShardedDataParallel, which takes all ranks"
        raise UsageError(
            what, where=f"--parallel {parallel}", hint=f"fsdp1={parallel.ranks}, or wrap it in parallelize()"
        )
    world.current().assume(f"the target's own FullyShardedDataParallel, over {parallel.ranks} ranks")
    return model


def sharded_elements(model: nn.Module) -> tuple[int, int]:
    """Parameters of a wrapped model before they were sharded: all, and those that learn."""
    units = [module for module in model.modules() if isinstance(module, FullyShardedDataParallel)]
    flat = [unit._flat_param for unit in units if unit._flat_param is not None]
    counts = [(each._unpadded_unsharded_size.numel(), each.requires_grad) for each in flat]
    return sum(count for count, _ in counts), sum(count for count, learns in counts if learns)


def _mixed(precision: Precision) -> MixedPrecision | None:
    """accelerate/utils/dataclasses.py ``FullyShardedDataParallelPlugin.set_mixed_precision``."""
    if precision not in REDUCED_IN:
        return None
    dtype = REDUCED_IN[precision]
    return MixedPrecision(param_dtype=dtype, reduce_dtype=dtype, buffer_dtype=dtype)
