"""The one entry to all kinds of parallelism: a model is shared by degree, innermost first."""

from collections.abc import Callable

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from memplan.errors import UsageError
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.job.usercode import user_code
from memplan.tracing.sharding import context_parallel, ddp, expert_parallel, fsdp, fsdp1, tensor_parallel, world
from memplan.tracing.sharding.materialise import on_meta
from memplan.tracing.sharding.staging import each_stage, staged

LEAST_TORCH = "2.13"
"""The first release on which these kinds were tried; on 2.6 torch's experimental code for them ends the process."""
_RECENT = {"tp": "tensor", "cp": "context", "ep": "expert", "pp": "pipeline"}

Sharing = Callable[[nn.Module, JobSpec, DeviceMesh], nn.Module]
"""Lets ranks share a model; changes it in place or returns another."""


def share(model: nn.Module, source: ModelSource, spec: JobSpec) -> nn.Module:
    """Share a target's model among the ranks of the current world, in its own way if it has one.

    The model is built, cast and checkpointed.
    """
    mesh = world.current().mesh
    if source.parallelize is None:
        _check_torch(spec)
        return parallelize(staged(model, source, spec) if spec.parallel.pipeline > 1 else model, spec, mesh)
    if spec.parallel.pipeline > 1:
        why = "the target's parallelize() cannot make pipeline stages"
        raise UsageError(why, where="--parallel pp", hint="take parallelize() away, or pp")
    with user_code("parallelize()"):
        shared = source.parallelize(model, mesh)
    return model if shared is None else shared


def parallelize(model: nn.Module, spec: JobSpec, mesh: DeviceMesh) -> nn.Module:
    """Share a model among ranks.

    It is built, cast and checkpointed, and nothing of it is on the device yet. What is returned may be wrapped;
    parameters that were sharded have memory of their own shard's size.

    Raises:
        UsageError: The model or torch has no way to do it.
    """
    if fsdp1.is_wrapped(model):
        return fsdp1.as_wrapped(model, spec)
    parallel = spec.parallel
    layers = [share for degree, share in _LAYERS.items() if getattr(parallel, degree) > 1]
    if parallel.data in _SHARDED:
        layers.append(_SHARDED[parallel.data])
    if layers:
        with on_meta(model, _home(spec)):
            for share in layers:
                model = each_stage(model, share, spec, mesh)
    if parallel.data not in _WRAPPED:
        return model
    return each_stage(model, _WRAPPED[parallel.data], spec, mesh)


def _check_torch(spec: JobSpec) -> None:
    wanted = [key for key, degree in _RECENT.items() if getattr(spec.parallel, degree) > 1]
    if wanted and torch.torch_version.TorchVersion(torch.__version__) < LEAST_TORCH:
        what = f"torch {torch.__version__} is too old to trace {', '.join(wanted)}"
        raise UsageError(what, where="--parallel", hint=f"pip install 'torch>={LEAST_TORCH}'")


def _home(spec: JobSpec) -> torch.device:
    """Where parameters live."""
    on_host = spec.parallel.offload or world.current().recorder.device.kind == "cpu"
    return torch.device("cpu" if on_host else "cuda")


_LAYERS: dict[str, Sharing] = {
    "tensor": tensor_parallel.shard,
    "context": context_parallel.shard,
    "expert": expert_parallel.shard,
}
"""Degree of ``Parallel`` → what shares layers by it, with parameters on the meta device; in order of application."""
_SHARDED: dict[str, Sharing] = {"fsdp2": fsdp.shard}
"""Data parallelism that shards parameters on the meta device."""
_WRAPPED: dict[str, Sharing] = {"ddp": ddp.replicate, "fsdp1": fsdp1.wrap}
"""Data parallelism that wraps a model whose parameters have memory."""
