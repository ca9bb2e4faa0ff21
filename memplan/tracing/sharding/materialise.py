"""Parameters without memory while a model is sharded, and with it afterwards, as torchtitan starts every run.

Sharding makes a view for each rank of each parameter. On fake tensors that takes a minute for thousands of ranks; on
the meta device, outside of every mode, seconds.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from memplan.seam.modes import disable_current_modes
from memplan.tracing.place import in_placement_order


@contextmanager
def on_meta(model: nn.Module, device: torch.device | str) -> Iterator[None]:
    """Let code inside shard a model whose parameters are on the meta device; give them memory afterwards.

    Inside there is no fake mode and nothing is recorded. Tied parameters stay tied. Buffers are not there.

    Parameters are exchanged in place, whatever they are afterwards (DTensors, for instance), and then lie on the
    device.
    """
    buffers = {module: module._buffers for module in model.modules()}
    with disable_current_modes():
        _exchange(model, _emptied)
        for module in buffers:
            vars(module)["_buffers"] = {}
        yield
        for module, own in buffers.items():
            vars(module)["_buffers"] = own
    _exchange(model, lambda parameter: _allocated(parameter, device))
    _tell_fsdp(model)


def _exchange(model: nn.Module, change: Callable[[nn.Parameter], nn.Parameter]) -> None:
    # Keys keep their parameters alive, so that no identity is given twice.
    changed: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}
    for _, module in in_placement_order("", model):
        for name, parameter in module._parameters.items():
            if parameter is not None:
                if id(parameter) not in changed:
                    changed[id(parameter)] = parameter, change(parameter)
                module._parameters[name] = changed[id(parameter)][1]


def _emptied(parameter: nn.Parameter) -> nn.Parameter:
    meta = torch.empty_strided(parameter.size(), parameter.stride(), dtype=parameter.dtype, device="meta")
    return _like(parameter, meta)


def _allocated(parameter: nn.Parameter, device: torch.device | str) -> nn.Parameter:
    return _like(parameter, torch.empty_like(parameter, device=device)) if parameter.is_meta else parameter


def _like(parameter: nn.Parameter, tensor: torch.Tensor) -> nn.Parameter:
    made = nn.Parameter(tensor.detach(), requires_grad=parameter.requires_grad)
    # Libraries leave marks on parameters, such as "not to be decayed"; memplan's own belong to the old tensor.
    marks = {name: value for name, value in vars(parameter).items() if not name.startswith("_memplan")}
    vars(made).update({name: value for name, value in marks.items() if name not in vars(made)})
    return made


def _tell_fsdp(model: nn.Module) -> None:
    """FSDP2 keeps its own references to the parameters that it has sharded (``FSDPModule._apply`` does this)."""
    for module in model.modules():
        state: Any = module._get_fsdp_state() if isinstance(module, FSDPModule) else None
        groups = getattr(state, "_fsdp_param_groups", None)
        if state is not None and groups is None:
            # torch 2.6 has one group at most.
            groups = [state._fsdp_param_group] if state._fsdp_param_group else []
        with torch.no_grad():
            for sharded in (each for group in groups or () for each in group.fsdp_params):
                sharded.reset_sharded_param()
