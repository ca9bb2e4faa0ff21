"""What is known of views of indices and masks: which dimension tells classes apart, and what of them is left."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from memplan.tracing.knowledge import Knowledge, Shares

aten = torch.ops.aten

_SWAPPING = frozenset({aten.transpose.int, aten.t.default})
_SHAPING = frozenset({aten.view.default, aten._unsafe_view.default, aten.reshape.default})
_SQUEEZING = frozenset({aten.squeeze.default, aten.squeeze.dim})
_PICKING = frozenset({aten.select.int, aten.unbind.int})
"""Ops whose results lack a dimension, of which they have one place."""
_PARTING = frozenset({aten.slice.Tensor, aten.split.Tensor, aten.split_with_sizes.default})
"""Ops whose results have a part of a dimension."""


def viewed(func: Any, args: Sequence[Any], known: Knowledge, results: Sequence[torch.Tensor]) -> list[Knowledge]:
    """Return what is known of each result of an op that keeps elements.

    Args:
        func: The op, one of ``value_rules.KEEPERS``.
        args: Its arguments.
        known: What is known of the first, without its elements.
        results: Its results.
    """
    source = args[0]
    if known.top is None and known.tally is None and known.shares is None:
        return [known for _ in results]
    tally = known.tally if all(each.numel() == source.numel() for each in results) else None
    known = replace(known, tally=tally)
    return [_viewed(func, args, known, index, result) for index, result in enumerate(results)]


def _viewed(func: Any, args: Sequence[Any], known: Knowledge, index: int, result: torch.Tensor) -> Knowledge:
    if known.top is not None and func in _PICKING | _PARTING:
        known = replace(known, top=_top(func, args, known.top, result))
    if known.shares is None:
        return known
    if func in _PICKING | _PARTING and _dim(func, args) == known.shares.axis:
        density, left = _of_classes(func, args, known.shares, index, result)
        return replace(known, density=density, shares=left)
    axis = _axis(func, args, known.shares.axis, result)
    return replace(known, shares=None if axis is None else replace(known.shares, axis=axis))


def _dim(func: Any, args: Sequence[Any]) -> int:
    """The dimension that an op takes a place or a part of."""
    position = 2 if func in {aten.split.Tensor, aten.split_with_sizes.default} else 1
    return int(args[position]) % max(args[0].dim(), 1) if len(args) > position else 0


def _top(func: Any, args: Sequence[Any], top: int, result: torch.Tensor) -> int:
    """How many of a token's choices are left."""
    dim = _dim(func, args)
    if args[0].shape[dim] != top:
        return top
    return 1 if func in _PICKING else max(1, result.shape[dim])


def _of_classes(
    func: Any, args: Sequence[Any], shares: Shares, index: int, result: torch.Tensor
) -> tuple[float, Shares | None]:
    """Of one class its own density; of some of them theirs."""
    each = shares.each
    if func in _PICKING:
        return each[index if func is aten.unbind.int else int(args[2])], None
    if func is aten.slice.Tensor:
        start, end, step = (args[position] if len(args) > position else None for position in (2, 3, 4))
        each = each[start:end:step]
    else:
        first = index * args[1] if func is aten.split.Tensor else sum(args[1][:index])
        each = each[first : first + result.shape[shares.axis]]
    return sum(each) / max(len(each), 1), replace(shares, each=each)


def _axis(func: Any, args: Sequence[Any], axis: int, result: torch.Tensor) -> int | None:
    """Where the dimension of classes is afterwards; None where nobody knows."""
    source = args[0]
    if func in _SHAPING and source.shape != result.shape:
        # Other dimensions are put together or taken apart.
        is_last = axis == source.dim() - 1 and result.dim() > 0 and result.shape[-1] == source.shape[-1]
        return result.dim() - 1 if is_last else None
    order = _order(func, args, result)
    return order.index(axis) if axis in order else None


def _order(func: Any, args: Sequence[Any], result: torch.Tensor) -> list[int]:
    """Which dimension each of the result's was; -1 for a new one."""
    source = args[0]
    order = list(range(source.dim()))
    if func is aten.permute.default:
        return [dim % source.dim() for dim in args[1]]
    if func in _SWAPPING:
        first, second = args[1:3] if len(args) > 1 else (0, -1)
        order[first], order[second] = order[second], order[first]
    elif func is aten.unsqueeze.default:
        order.insert(args[1] % result.dim(), -1)
    elif func in _PICKING:
        del order[_dim(func, args)]
    elif func in _SQUEEZING:
        gone = order if len(args) == 1 else [args[1] % source.dim()]
        order = [dim for dim in order if dim not in gone or source.shape[dim] != 1]
    elif func is aten.expand.default:
        order = [*[-1] * (result.dim() - source.dim()), *order]
    return order


def reduced(shares: Shares, dims: Sequence[int], source: torch.Tensor, result: torch.Tensor) -> Shares | None:
    """The dimension of classes after others are summed up; None where it is one of them."""
    gone = {dim % source.dim() for dim in dims} if dims else set(range(source.dim()))
    if shares.axis in gone:
        return None
    kept = result.dim() == source.dim()
    return replace(shares, axis=shares.axis if kept else shares.axis - sum(dim < shares.axis for dim in gone))
