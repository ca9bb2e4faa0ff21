"""How a CUDA reduction sees its operands: TensorIterator's reordering, coalescing and 32-bit splitting.

Follows aten/src/ATen/TensorIterator.cpp (``reorder_dimensions``, ``coalesce_dimensions``, ``SplitUntil32Bit``) for an
iterator with one output and one input. The fastest dimension comes first; strides are in bytes; the output's stride is
zero in reduced dimensions.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

_INT32_MAX = 2**31 - 1


class Axis(NamedTuple):
    """One dimension of the iteration."""

    size: int
    out_stride: int
    in_stride: int

    @property
    def reduced(self) -> bool:
        """Is the dimension reduced away?"""
        return self.out_stride == 0


Axes = tuple[Axis, ...]


def iteration(
    shape: Sequence[int], strides: Sequence[int], reduced: Collection[int], *, in_bytes: int, out_bytes: int
) -> Axes:
    """The axes that a reduction of a tensor iterates over.

    Args:
        shape: Shape of the input.
        strides: Its strides in elements.
        reduced: Dimensions that are reduced.
        in_bytes: Bytes of an input element.
        out_bytes: Bytes of an output element; the output is contiguous.

    Returns:
        Reordered and coalesced axes, fastest first.
    """
    out_strides, step = [0] * len(shape), out_bytes
    for dim in reversed(range(len(shape))):
        if dim not in reduced:
            out_strides[dim] = step
            step *= shape[dim]
    axes = [Axis(shape[dim], out_strides[dim], strides[dim] * in_bytes) for dim in reversed(range(len(shape)))]
    return _coalesce(_reorder(axes))


def _swap(first: Axis, second: Axis) -> int:
    """Should two axes change places? Positive: yes; negative: no; zero: they do not say."""
    if first.reduced != second.reduced:
        return 1 if second.reduced else -1
    for a, b in ((first.out_stride, second.out_stride), (first.in_stride, second.in_stride)):
        if a == 0 or b == 0:
            continue
        if a != b:
            return -1 if a < b else 1
        if first.size > second.size:
            return 1
    return 0


def _reorder(axes: list[Axis]) -> list[Axis]:
    """Insertion sort that skips ambiguous pairs, as TensorIterator's."""
    axes = list(axes)
    for start in range(1, len(axes)):
        current = start
        for other in reversed(range(start)):
            order = _swap(axes[other], axes[current])
            if order > 0:
                axes[other], axes[current] = axes[current], axes[other]
                current = other
            elif order < 0:
                break
    return axes


def _coalesce(axes: list[Axis]) -> Axes:
    merged = axes[:1]
    for axis in axes[1:]:
        last = merged[-1]
        if last.size == 1:
            merged[-1] = axis
        elif axis.size == 1 or (
            last.size * last.out_stride == axis.out_stride and last.size * last.in_stride == axis.in_stride
        ):
            merged[-1] = last._replace(size=last.size * axis.size)
        else:
            merged.append(axis)
    return tuple(merged)


def fits_32_bit(axes: Axes) -> bool:
    """Can the kernel index it with 32-bit integers?"""
    reach = (sum((axis.size - 1) * stride for axis, stride in pairs) for pairs in _by_operand(axes))
    return math.prod(axis.size for axis in axes) <= _INT32_MAX and all(1 + bytes_ <= _INT32_MAX for bytes_ in reach)


def _by_operand(axes: Axes) -> tuple[list[tuple[Axis, int]], list[tuple[Axis, int]]]:
    return [(axis, axis.out_stride) for axis in axes], [(axis, axis.in_stride) for axis in axes]


def split_32_bit(axes: Axes) -> Iterator[Axes]:
    """Halve the longest-reaching dimension until every piece can be indexed with 32 bits; pieces in launch order."""
    if fits_32_bit(axes):
        yield axes
        return
    extents = [(axis.size - 1) * max(axis.out_stride, axis.in_stride) for axis in axes]
    # TensorIteratorBase::get_dim_to_split scans from the slowest dimension and keeps the first maximum.
    dim = max(reversed(range(len(axes))), key=extents.__getitem__)
    half = axes[dim].size // 2
    for size in (half, axes[dim].size - half):
        yield from split_32_bit((*axes[:dim], axes[dim]._replace(size=size), *axes[dim + 1 :]))
