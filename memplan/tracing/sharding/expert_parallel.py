"""Expert parallelism by transformers' own plan: every rank keeps some of the experts, and tokens travel to them."""

from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

from memplan.errors import UsageError
from memplan.job.parallel import Parallel
from memplan.job.spec import JobSpec
from memplan.tracing.sharding import world
from memplan.tracing.sharding.fsdp import mixed_precision
from memplan.tracing.sharding.pipeline import whole_models

_DISPATCH = "ep_dispatch_experts"
"""transformers' style of a module whose experts get their tokens by all-to-all (distributed/expert_parallel.py)."""


def shard(model: nn.Module, spec: JobSpec, mesh: DeviceMesh) -> nn.Module:
    """Share the experts of a model, or of its stages, among ranks; runs with parameters on the meta device.

    Raises:
        UsageError: transformers has no plan for the model, or the ranks cannot share the experts evenly.
    """
    _check(spec.parallel)
    experts, alone = _meshes(spec.parallel, mesh)
    for piece in whole_models(model):
        for module in _apply(piece, spec.parallel, experts["ep"], alone):
            _shard_copies(module, spec, experts)
    world.current().assume("experts by transformers' plan: tokens go to their ranks and back by all-to-all")
    return model


def _check(parallel: Parallel) -> None:
    sharing = parallel.shards * parallel.context
    why = None
    if parallel.data != "fsdp2":
        why = "experts are shared among ranks of fsdp"
    elif sharing % parallel.expert:
        why = f"{sharing} ranks cannot be cut into groups of {parallel.expert}"
    elif parallel.tensor > 1 or parallel.pipeline > 1:
        why = "transformers does not combine it with pipelines, nor memplan with tensor parallelism"
    if why:
        raise UsageError(
            f"--parallel ep={parallel.expert}: {why}", hint=f"write fsdp={parallel.expert},ep={parallel.expert}"
        )


def _meshes(parallel: Parallel, mesh: DeviceMesh) -> tuple[DeviceMesh, DeviceMesh]:
    """All ranks as copies of the experts and ranks that share one copy; and a group of this rank alone."""
    copies = parallel.shards * parallel.context // parallel.expert
    shape, names = (parallel.replicas, copies, parallel.expert), ("dp_replicate", "efsdp", "ep")
    alone = init_device_mesh(mesh.device_type, (parallel.ranks, 1), mesh_dim_names=("others", "tp"))["tp"]
    return init_device_mesh(mesh.device_type, shape, mesh_dim_names=names), alone


def _apply(model: Any, parallel: Parallel, ranks: DeviceMesh, alone: DeviceMesh) -> list[Any]:
    """Share the experts of a transformers model; the modules that hold them."""
    try:
        from transformers.distributed.configuration_utils import DistributedConfig
        from transformers.distributed.expert_parallel import apply_expert_parallelism
    except ImportError as error:
        raise UsageError("expert parallelism needs transformers 5.21 or later", where="--parallel ep") from error
    if not getattr(model, "ep_plan", None):
        hint = "define parallelize(model, mesh) in the target"
        raise UsageError(
            f"transformers has no expert plan for {type(model).__name__}", where="--parallel ep", hint=hint
        )
    _, plan, _ = model._resolve_parallel_plans(DistributedConfig(fsdp_size=parallel.expert, ep_size=parallel.expert))
    try:
        apply_expert_parallelism(model, ranks, alone, plan, ep_implementation="all_to_all")
    except ValueError as error:
        raise UsageError(str(error), where="--parallel ep") from error
    return [model.get_submodule(name) for name, style in plan.items() if style == _DISPATCH]


def _shard_copies(module: Any, spec: JobSpec, experts: DeviceMesh) -> None:
    """FSDP of the experts over the ranks that have the same ones (transformers, distributed/fsdp.py)."""
    replicated = spec.parallel.replicas > 1
    fully_shard(
        module,
        mesh=experts["dp_replicate", "efsdp"] if replicated else experts["efsdp"],
        reshard_after_forward=True,
        mp_policy=mixed_precision(spec.precision),
        offload_policy=CPUOffloadPolicy() if spec.parallel.offload else OffloadPolicy(),
    )
    module.set_gradient_divide_factor(float(spec.parallel.data_ranks))
    if experts["efsdp"].size() > 1:
        module.set_force_sum_reduction_for_comms(True)
