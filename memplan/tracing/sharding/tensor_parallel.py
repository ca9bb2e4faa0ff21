"""Tensor parallelism: by transformers' own plan where it has one for the model, else by the names of its layers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from memplan.errors import UsageError
from memplan.job.parallel import Parallel
from memplan.job.spec import JobSpec
from memplan.tracing.sharding import world
from memplan.tracing.sharding.pipeline import whole_models
from memplan.tracing.sharding.stand_ins import StandIn
from memplan.tracing.sharding.tensor_names import by_names

_HEADS = ("num_attention_heads", "num_key_value_heads")
"""Of a transformers configuration: what ranks must be able to share evenly."""

OWN_PLAN = "tensor parallelism by transformers' plan for the model; between layers every rank has whole activations"


def shard(model: nn.Module, spec: JobSpec, mesh: DeviceMesh) -> nn.Module:
    """Let the tensor-parallel ranks share every layer of a model, or of its stages, on the meta device.

    Raises:
        UsageError: The layers are not known, or cannot be shared evenly.
    """
    pieces = whole_models(model)
    for piece in pieces:
        with _untied(piece):
            # Stages must agree on how hidden states cross: whether a sequence can be shared shows in the whole alone.
            said = _by_own_plan(piece, spec.parallel, mesh) or by_names(piece, mesh["tp"], sequence=piece is model)
        world.current().assume(said)
    return model


def _by_own_plan(model: Any, parallel: Parallel, mesh: DeviceMesh) -> str | None:
    """Apply the plan of a transformers model; None where there is none."""
    try:
        from transformers.distributed.configuration_utils import DistributedConfig
        from transformers.distributed.tensor_parallel import apply_tensor_parallelism
    except ImportError:
        # Before transformers 5.20 it is part of loading weights, and cannot be had without them.
        return None
    if not getattr(model, "tp_plan", None):
        return None
    _check_heads(model.config.get_text_config(), parallel.tensor)
    # Experts of their own ranks are left out of the plan.
    sizes = DistributedConfig(tp_size=parallel.tensor, fsdp_size=parallel.expert, ep_size=parallel.expert)
    plan, *_ = model._resolve_parallel_plans(sizes)
    elsewhere = {name for name, module in model.named_modules() if isinstance(module, StandIn)}
    apply_tensor_parallelism(model, mesh["tp"], {name: style for name, style in plan.items() if name not in elsewhere})
    return OWN_PLAN


def _check_heads(config: Any, ranks: int) -> None:
    for name in _HEADS:
        heads = getattr(config, name, None)
        if heads and heads % ranks:
            raise UsageError(
                f"{ranks} ranks cannot share {heads} heads evenly ({name})",
                where="--parallel tp",
                hint="take a tp that divides them, or fsdp",
            )


@contextmanager
def _untied(model: nn.Module) -> Iterator[None]:
    """Part parameters that modules share while layers are sharded one by one, and join them again."""
    first: dict[int, str] = {}
    tied: dict[str, str] = {}
    for name, parameter in list(model.named_parameters(remove_duplicate=False)):
        if first.setdefault(id(parameter), name) != name:
            tied[name] = first[id(parameter)]
            _put(model, name, nn.Parameter(torch.empty_like(parameter), requires_grad=parameter.requires_grad))
    yield
    for name, original in tied.items():
        _put(model, name, model.get_parameter(original))


def _put(model: nn.Module, name: str, parameter: nn.Parameter) -> None:
    owner, _, key = name.rpartition(".")
    model.get_submodule(owner)._parameters[key] = parameter
