"""Parameters that are not plain tensors: packed ones, and DTensors of several meshes side by side.

One call of an optimizer or of clipping cannot take tensors of several meshes together.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import utils


def kinds(parameters: Iterable[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Parameters by the mesh that they are shared over, in order; those that are not shared together."""
    by_mesh: dict[Any, list[torch.Tensor]] = {}
    for parameter in parameters:
        by_mesh.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    return list(by_mesh.values())


def optimizer_groups(parameters: list[torch.Tensor]) -> list[Any]:
    """The parameters as an optimizer takes them: as they are, or in one group for each kind."""
    found = kinds(parameters)
    return parameters if len(found) == 1 else [{"params": each} for each in found]


PACKED = {getattr(torch, "float4_e2m1fn_x2", None): 2}
"""Numbers in one element of a dtype. Source: c10/core/ScalarType.h of torch 2.8, Float4_e2m1fn_x2."""


def elements(parameter: torch.Tensor) -> int:
    """The numbers that a parameter stands for.

    bitsandbytes packs two codes of 4 bits into each byte, and keeps the shape before that in ``quant_state`` (its
    functional.py, ``QuantState.shape``).
    """
    shape = getattr(getattr(parameter, "quant_state", None), "shape", None)
    return math.prod(shape) if shape is not None else parameter.numel() * PACKED.get(parameter.dtype, 1)


def clip(parameters: Iterable[torch.Tensor], most: float) -> None:
    """``clip_grad_norm_`` over all kinds, as torchtitan clips dense parameters and experts (distributed/utils.py)."""
    found = kinds(parameters)
    if len(found) == 1:
        utils.clip_grad_norm_(found[0], most)
        return
    gradients = [[parameter.grad for parameter in each if parameter.grad is not None] for each in found]
    norms = [utils.get_total_norm(each) for each in gradients]
    whole = [norm.full_tensor() if hasattr(norm, "full_tensor") else norm for norm in norms]
    total = torch.linalg.vector_norm(torch.stack(whole))
    for each in found:
        utils.clip_grads_with_norm_(each, most, total)
