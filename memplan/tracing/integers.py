"""Integers that a program reads from tensors, and what they may be: shapes, slices and loops hang on them.

How large one may be follows its tensor: a count of true elements is at most as many as were counted, an index is below
the number of classes, and sums, maxima and lengths after a convolution are what the same arithmetic makes of that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from memplan.seam.fake import FakeTensor, unset_fake_temporarily
from memplan.tracing.knowledge import Knowledge

aten = torch.ops.aten

MOST_UNBOUNDED = 128
"""Taken for the upper end where nothing bounds an integer: chosen so that a loop over a layer is traced in seconds. The
report names each such place among what is not modelled."""

SAME_BOUND = frozenset({aten.max.default, aten.min.default, aten.amax.default, aten.amin.default, aten.max.dim})
SAME_BOUND |= {aten.min.dim, aten.gather.default, aten.index_select.default, aten.sort.default, aten.relu.default}
"""Ops whose (first) result has no elements that their argument has not."""
RISING = frozenset({aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.floor_divide.default})
RISING |= {aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor_mode, aten.div.Scalar_mode, aten.clamp.default}
RISING |= {aten.div.Tensor, aten.clamp_max.default, aten.clamp_min.default, aten.floor.default, aten.ceil.default}
"""Ops whose result is the larger, the larger their first argument, where the others are numbers above zero."""
COUNTING = frozenset({aten._to_copy.default, aten.sum.default, aten.sum.dim_IntList})
"""Ops that make numbers of booleans."""
BOUNDING = SAME_BOUND | RISING | COUNTING
"""Ops by whose results a bound travels on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerRead:
    """A place where a program reads an integer that nobody knows."""

    shown: str
    """File and line, as reports name them."""
    is_bounded: bool
    """Is it known how large the integer may be?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """What is known of an integer that a program reads."""

    likely: int
    """What it is taken to be."""
    most: int | None
    """What it may be at most; None where nothing tells."""


def readable(known: Knowledge) -> Readable:
    """What an element may be, of which this is known.

    As masks are taken to select every element, a count of true elements is taken to be a count of all.
    """
    if known.bound is not None:
        return Readable(likely=known.bound, most=known.bound)
    if known.classes is not None:
        return Readable(likely=min(1, known.classes - 1), most=known.classes - 1)
    return Readable(likely=1, most=None)


def bound_of(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: torch.Tensor, known: Knowledge
) -> int | None:
    """What an op's elements are at most; None where nothing tells.

    Args:
        func: The op, one of ``BOUNDING``.
        args: Its arguments.
        kwargs: Its keyword arguments.
        result: Its (first) result.
        known: What is known of its first argument.
    """
    source = args[0]
    most = 1 if source.dtype is torch.bool else known.bound
    if most is None and func in SAME_BOUND and known.classes:
        # The largest of many tokens is about as large as tokens are.
        most = known.classes - 1
    if most is None or result.dtype is torch.bool:
        return None
    if func in {aten.sum.default, aten.sum.dim_IntList}:
        return int(most * source.numel() // max(result.numel(), 1))
    return _risen(func, args, kwargs, most) if func in RISING else most


def _risen(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], most: int) -> int | None:
    others = [*args[1:], *kwargs.values()]
    numbers = [each for each in others if isinstance(each, int | float)]
    if any(isinstance(each, FakeTensor) for each in others) or any(number < 0 for number in numbers):
        return None
    with unset_fake_temporarily():
        try:
            return int(func(torch.tensor(most), *args[1:], **kwargs))
        except RuntimeError:
            # The kernel wants a fraction (``floor``).
            return int(func(torch.tensor(float(most)), *args[1:], **kwargs))
