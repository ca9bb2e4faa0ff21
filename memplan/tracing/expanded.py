"""Where elementwise ops lay their results, if an operand is expanded.

Fake tensors answer by torch/_refs. These bring half types to float first, where an expanded operand becomes a dense
one, and take some operands in another order: either may decide how the result lies. The kernels' TensorIterator leaves
out the dimensions in which an operand does not move (aten/src/ATen/TensorIterator.cpp ``reorder_dimensions``).
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from memplan.seam.fake import FakeTensor
from memplan.seam.operators import OpOverload
from memplan.seam.tensors import compute_elementwise_output_strides


def iterated(func: Any, args: tuple[Any, ...], result: Any) -> Any:
    """Return an op's result on fake tensors as a TensorIterator lays it out.

    Args:
        func: The op.
        args: Its arguments.
        result: What the fake mode returned.
    """
    if type(result) is not FakeTensor or not _is_elementwise(func):
        return result
    operands = [each for each in args if isinstance(each, torch.Tensor)]
    return as_iterated(result, operands[::-1] if func._opname in _READS_SECOND_FIRST else operands)


def as_iterated(result: torch.Tensor, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a result as a TensorIterator lays it out; the same where no operand of several is expanded."""
    operands = [each for each in operands if each.ndim]
    if len(operands) < 2 or not any(map(_is_expanded, operands)):
        return result
    stride = compute_elementwise_output_strides(*(each.expand(result.shape) for each in operands))
    return result if result.stride() == tuple(stride) else result.new_empty_strided(result.shape, stride)


_READS_SECOND_FIRST = frozenset({"threshold_backward"})
"""Kernels whose iterator has the second operand first (Activation.cpp)."""
_COPIES = frozenset({"masked_fill"})
"""Elementwise ops that copy an operand as it lies (TensorAdvancedIndexing.cpp)."""


@cache
def _is_elementwise(func: Any) -> bool:
    if not isinstance(func, OpOverload) or func.namespace != "aten" or torch.Tag.pointwise not in func.tags:
        return False
    return func._opname not in _COPIES and not func._schema.is_mutable


def _is_expanded(tensor: torch.Tensor) -> bool:
    return any(step == 0 and size > 1 for size, step in zip(tensor.shape, tensor.stride(), strict=True))
