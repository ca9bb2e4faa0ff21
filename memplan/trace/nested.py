"""Tensors in nested arguments."""

from typing import Any

import torch


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Tensors in an argument or result, however nested in lists and tuples, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []
