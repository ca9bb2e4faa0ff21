"""Tensor methods whose C++ sets the current device first, which needs a GPU, or at least its driver.

All other methods reach the fake mode's dispatch without asking: each was called on a fake CUDA tensor, torch 2.13.
"""

from types import EllipsisType
from typing import Any

import torch

from memplan.seam.replace import Replacement

aten = torch.ops.aten

Index = int | slice | None | EllipsisType | torch.Tensor | list[int]


def guardless() -> tuple[Replacement, ...]:
    """The same methods by way of the dispatcher alone."""
    methods: dict[str, Any] = {
        "__invert__": _invert,
        "__getitem__": _get,
        "__setitem__": _set,
        "contiguous": _contiguous,
        "copy_": _copy,
    }
    return tuple(Replacement(f"torch.Tensor.{name}", method) for name, method in methods.items())


def _invert(tensor: torch.Tensor) -> torch.Tensor:
    return torch.bitwise_not(tensor)


def _copy(tensor: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    return aten.copy_.default(tensor, source, non_blocking)  # type: ignore[no-any-return]


def _contiguous(tensor: torch.Tensor, memory_format: torch.memory_format = torch.contiguous_format) -> torch.Tensor:
    if tensor.is_contiguous(memory_format=memory_format):
        return tensor
    return aten.clone.default(tensor, memory_format=memory_format)  # type: ignore[no-any-return]


def _set(tensor: torch.Tensor, index: Index | tuple[Index, ...], value: Any) -> None:
    """``tensor[index] = value``: what is picked by tensors is put in place, and no copy of it changed."""
    target, picked = _sliced(tensor, index)
    if any(each is not None for each in picked):
        is_tensor = isinstance(value, torch.Tensor)
        given = value if is_tensor else torch.full((), value, dtype=tensor.dtype, device=tensor.device)
        aten.index_put_.default(target, picked, given)
    elif isinstance(value, torch.Tensor):
        target.copy_(value)
    else:
        target.fill_(value)


def _get(tensor: torch.Tensor, index: Index | tuple[Index, ...]) -> torch.Tensor:
    """``tensor[index]``."""
    tensor, picked = _sliced(tensor, index)
    if any(each is not None for each in picked):
        tensor = aten.index.Tensor(tensor, picked)
    return tensor


def _sliced(tensor: torch.Tensor, index: Index | tuple[Index, ...]) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
    """What is left to be picked by tensors (torch/csrc/autograd/python_variable_indexing.cpp ``applySlicing``)."""
    items = index if isinstance(index, tuple) else (index,)
    picked: list[torch.Tensor | None] = []
    dim = 0
    for position, item in enumerate(items):
        if item is Ellipsis:
            rest = sum(other is not None and other is not Ellipsis for other in items[position + 1 :])
            picked += [None] * (tensor.dim() - rest - dim)
            dim = tensor.dim() - rest
        elif isinstance(item, int) and not isinstance(item, bool):
            tensor = aten.select.int(tensor, dim, item)
        elif item is None:
            tensor = aten.unsqueeze.default(tensor, dim)
            picked.append(None)
            dim += 1
        elif isinstance(item, slice):
            tensor = aten.slice.Tensor(tensor, dim, item.start, item.stop, item.step or 1)
            picked.append(None)
            dim += 1
        else:
            chosen = torch.as_tensor(item, device=tensor.device)
            picked.append(chosen)
            dim += chosen.dim() if chosen.dtype is torch.bool else 1
    return tensor, picked
