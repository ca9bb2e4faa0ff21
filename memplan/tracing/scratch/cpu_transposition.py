"""The tile through which a CPU copy turns a matrix around.

aten/src/ATen/native/Copy.cpp ``copy_transpose_valid`` and ``copy_same_type_transpose_``: rows are read and columns
written in tiles of 60 by 60 elements, which pass through PyTorch's allocator.
"""

import torch

from memplan.tracing.scratch.cpu_shapes import argument
from memplan.tracing.scratch.rules import Call, Rule, Script, within

_TILE = 60 * 60


def transposition_bytes(source: torch.Tensor) -> int:
    """The tile's bytes where a contiguous matrix of the same type is filled from ``source``; else nothing."""
    turned = source.dim() == 2 and source.stride(0) == 1 and source.stride(1) == source.shape[0]
    return _TILE * source.element_size() if turned and source.numel() >= _TILE else 0


def _into(target: torch.Tensor, source: torch.Tensor) -> Script | None:
    fits = target.is_contiguous() and target.dtype is source.dtype and target.shape == source.shape
    return within({"tile": transposition_bytes(source)}) if fits else None


def copied(call: Call) -> Script | None:
    """``copy_``."""
    target, source = call.args[:2]
    return _into(target, source)


def duplicate(call: Call) -> Script | None:
    """``clone`` and ``_to_copy``: the result may lie otherwise than its source."""
    return _into(call.out, call.args[0]) if argument(call, 1, "memory_format") is not None or call.kwargs else None


RULES: dict[str, Rule] = {
    "aten.copy_.default": copied,
    "aten.clone.default": duplicate,
    "aten._to_copy.default": duplicate,
}
"""Op name → rule."""
