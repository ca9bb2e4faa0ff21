"""``_trilinear``, the kernel of ``nn.Bilinear`` and of its gradients, as the ops that its C++ calls.

Follows aten/src/ATen/native/Linear.cpp ``_trilinear`` and ``sumproduct_pair``. The kernel goes through one dimension
slice by slice; every slice allocates and frees the same sizes, so one of them is played.
"""

import math
from collections.abc import Sequence

import torch

OPERATOR = "aten._trilinear.default"


def trilinear(  # noqa: PLR0917 - the schema of the op
    first: torch.Tensor,
    second: torch.Tensor,
    third: torch.Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> torch.Tensor:
    """The sum over ``sumdim`` of the product of three tensors, each with new dimensions where it is to be expanded."""
    factors = (first, second, third)
    expanded = (expand1, expand2, expand3)
    first, second, third = (_unsqueezed(*each) for each in zip(factors, expanded, strict=True))
    shapes = zip(first.shape, second.shape, third.shape, strict=True)
    sizes = [1 if dim in sumdim else _common(each) for dim, each in enumerate(shapes)]
    output = first.new_zeros(sizes)
    if first.numel() and second.numel() and third.numel():
        summed = [dim for dim in range(len(sizes)) if dim in sumdim and dim != unroll_dim]
        slices = [each.narrow(unroll_dim, 0, 1) for each in (first, second, third)]
        part = _sum_of_products(slices[0], slices[1], [dim for dim in summed if dim in expand3])
        part = _sum_of_products(part, slices[2], [dim for dim in summed if dim not in expand3])
        output.narrow(unroll_dim, 0, 1).add_(part)
    for dim in sorted(sumdim, reverse=True):
        output.squeeze_(dim)
    return output


def _common(lengths: Sequence[int]) -> int:
    """What a dimension is long, in which some of them are expanded."""
    return next((length for length in lengths if length != 1), 1)


def _unsqueezed(tensor: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    for dim in sorted(dims):
        tensor = tensor.unsqueeze(dim)
    return tensor


def _sum_of_products(left: torch.Tensor, right: torch.Tensor, summed: Sequence[int]) -> torch.Tensor:
    """``sumproduct_pair`` with ``keepdim``: a batched matrix product of the two, each permuted and flattened for it."""
    if not summed:
        return left * right
    for dim in summed:
        # What only one of them has is summed at once.
        if left.shape[dim] != 1 and right.shape[dim] == 1:
            left = left.sum(dim, keepdim=True)
        elif left.shape[dim] == 1 and right.shape[dim] != 1:
            right = right.sum(dim, keepdim=True)
    rest = [dim for dim in range(left.dim()) if dim not in summed]
    both = [dim for dim in rest if left.shape[dim] != 1 and right.shape[dim] != 1]
    lefts = [dim for dim in rest if left.shape[dim] != 1 and right.shape[dim] == 1]
    rights = [dim for dim in rest if left.shape[dim] == 1]
    order = [*both, *lefts, *summed, *rights]
    shape = [left.shape[dim] for dim in (*both, *lefts)] + [1] * len(summed) + [right.shape[dim] for dim in rights]
    product = torch.bmm(
        _flattened(left, (both, lefts, summed), rights), _flattened(right, (both, summed, rights), lefts)
    )
    return product.view(shape).permute([order.index(dim) for dim in range(left.dim())])


def _flattened(tensor: torch.Tensor, groups: Sequence[Sequence[int]], single: Sequence[int]) -> torch.Tensor:
    """A tensor with one dimension for each group of its dimensions; ``single`` are of one element."""
    order = [dim for group in groups for dim in group]
    return tensor.permute([*order, *single]).reshape(
        [math.prod(tensor.shape[dim] for dim in group) for group in groups]
    )
