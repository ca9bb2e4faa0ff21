"""Tensors in nested arguments and results."""

from typing import Any

import torch


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Tensors in an argument or result, however nested in lists and tuples, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


Path = tuple[int, ...]
"""Indices that lead to a tensor in a nested result; empty where the result is the tensor."""


def leaves_of(result: Any) -> list[tuple[Path, torch.Tensor]]:
    """Tensors in an op's result, each with its path, in order."""
    if isinstance(result, torch.Tensor):
        return [((), result)]
    if isinstance(result, list | tuple):
        return [((index, *path), leaf) for index, item in enumerate(result) for path, leaf in leaves_of(item)]
    return []
