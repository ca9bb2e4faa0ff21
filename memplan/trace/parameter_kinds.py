"""Plain parameters and DTensors of several meshes side by side, which one call of an optimizer cannot take together."""

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
