"""What is known of an op's results: rules that follow densities, classes and draws through the ops of a step."""

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from memplan.seam.fake import unset_fake_temporarily
from memplan.tracing.knowledge import NOTHING, SMALL, Knowledge, is_choice
from memplan.tracing.nested import tensors_in
from memplan.tracing.router_rules import (
    by_class,
    counted_classes,
    counts_of,
    evenly,
    looked_up,
    numbers_of,
    repeated,
    told_apart,
)
from memplan.tracing.viewed import reduced

if TYPE_CHECKING:
    from memplan.tracing.guesses import Guesses

aten = torch.ops.aten

Rule = Callable[["Guesses", tuple[Any, ...], Mapping[str, Any], Any], Knowledge]
"""(values, args, kwargs, result) → what is known of the result."""


def _positions(_: "Guesses", args: tuple[Any, ...], __: Mapping[str, Any], result: torch.Tensor) -> Knowledge:
    """``nonzero`` of a vector that is all true: its positions are known."""
    mask = args[0]
    if mask.dim() == 1 and result.shape[0] == mask.numel() <= SMALL:
        with unset_fake_temporarily():
            return Knowledge(value=torch.arange(mask.numel()).unsqueeze(1))
    return Knowledge(classes=max(mask.shape, default=1))


def _even_counts(values: "Guesses", args: tuple[Any, ...], _: Mapping[str, Any], result: torch.Tensor) -> Knowledge:
    """``bincount`` and ``histc``: every class is counted equally often."""
    return NOTHING if result.numel() > SMALL else counted_classes(values, args[0], result)


def _scattered_counts(
    values: "Guesses", args: tuple[Any, ...], _: Mapping[str, Any], result: torch.Tensor
) -> Knowledge:
    """``zeros.scatter_add_(0, index, ones)`` counts like ``bincount`` (transformers' dispatch to experts)."""
    counted = _is_all(values, args[0], 0) and _is_all(values, args[3], 1)
    if not counted or result.dim() != 1 or result.is_floating_point() or result.numel() > SMALL:
        return NOTHING
    return counted_classes(values, args[2], result)


def _is_all(values: "Guesses", tensor: torch.Tensor, number: int) -> bool:
    known = values.knowledge_of(tensor)
    if known.value is None:
        return known.density == number
    with unset_fake_temporarily():
        return bool((known.value == number).all())


def _summed(values: "Guesses", args: tuple[Any, ...], _: Mapping[str, Any], result: torch.Tensor) -> Knowledge:
    """``mask.sum(...)``: each sum counts an equal share of the true elements."""
    known = values.knowledge_of(args[0])
    if known.density is None or not 0 < result.numel() <= SMALL or result.is_floating_point():
        return NOTHING
    if known.shares is not None and len(known.shares.each) == result.numel():
        values.assume_routing()
        one = args[0].numel() / result.numel()
        return counts_of([share * one for share in known.shares.each], result)
    if known.classes and known.classes < result.numel():
        # One sum for each class, and some for classes that do not occur (a place for tokens without an expert).
        return evenly(round(args[0].numel() / result.numel() * known.density * known.classes), result, known.classes)
    return evenly(values.true_elements(args[0], known.density, is_routed=known.is_routed), result)


def classes_of_dim(position: int) -> Rule:
    """A rule for ops that return indices into the dimension which their argument at ``position`` names."""

    def rule(_: "Guesses", args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> Knowledge:
        dim = kwargs.get("dim", args[position] if len(args) > position else -1)
        source, indices = args[0], tensors_in(result)[-1]
        if dim is None or not source.dim():
            return Knowledge(classes=source.numel())
        return Knowledge(classes=source.shape[dim], top=indices.shape[dim] if indices.dim() == source.dim() else 1)

    return rule


def _equal(values: "Guesses", args: tuple[Any, ...], _: Mapping[str, Any], result: torch.Tensor) -> Knowledge:
    """``index == k``, ``index == arange(E)``: true once in as many classes as there are; ``mask == 0`` inverts it."""
    sides = [values.knowledge_of(side) for side in args[:2] if isinstance(side, torch.Tensor)]
    if sides[0].density is not None and not isinstance(args[1], torch.Tensor) and args[1] in (0, 1):
        return Knowledge(density=sides[0].density if args[1] else 1 - sides[0].density)
    classes = max((side.classes for side in sides if side.classes), default=None)
    compared = max((side.value.numel() for side in sides if side.value is not None), default=1)
    if (told := told_apart(values, args[:2], result)) is not None:
        return told
    if classes is None:
        return Knowledge(density=1 / compared) if compared > 1 else NOTHING
    if not isinstance(args[1], torch.Tensor) and not 0 <= args[1] < classes:
        # No index is that: ``labels == -100``.
        return Knowledge(density=0.0)
    is_routed = is_choice(sides[0]) and numbers_of(values, args[1]) is not None
    values.routes |= is_routed and compared > 1
    # ``one_hot(index, E + 1)`` has a place for tokens without an expert, which stays empty.
    return Knowledge(density=1 / classes, classes=classes if compared > classes else None, is_routed=is_routed)


def _unequal(values: "Guesses", args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> Knowledge:
    return _opposite(_equal(values, args, kwargs, result))


def _opposite(known: Knowledge) -> Knowledge:
    return NOTHING if known.density is None else Knowledge(density=1 - known.density, is_assumed=known.is_assumed)


def _below(values: "Guesses", args: tuple[Any, ...], _: Mapping[str, Any], __: Any) -> Knowledge:
    """``draw < p`` holds for a share p of even draws, and ``index < k`` for k of the classes."""
    known, bound = values.knowledge_of(args[0]), args[1]
    if known.uniform:
        return Knowledge(density=min(max(float(bound), 0.0), 1.0))
    return Knowledge(density=min(max(bound / known.classes, 0.0), 1.0)) if known.classes else NOTHING


def _not_below(values: "Guesses", args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> Knowledge:
    return _opposite(_below(values, args, kwargs, result))


def _one_hot_scatter(
    values: "Guesses", args: tuple[Any, ...], __: Mapping[str, Any], result: torch.Tensor
) -> Knowledge:
    """``zeros.scatter_(dim, index, 1)``, which is ``one_hot``: true once in as many classes as occur."""
    if args[3] != 1:
        return NOTHING
    size, known = result.shape[args[1]], values.knowledge_of(args[2])
    values.routes |= is_choice(known)
    loads = values.loads(args[2])
    if loads is not None and len(loads) <= size and result.numel():
        one = result.numel() // size
        return by_class((*(load / one for load in loads), *(0.0,) * (size - len(loads))), args[1] % result.dim())
    share = args[2].numel() / max(result.numel(), 1)
    if known.classes and known.classes < size:
        return Knowledge(density=share * size / known.classes, classes=known.classes, is_routed=is_choice(known))
    return Knowledge(density=share, is_routed=is_choice(known))


def _one_hot_put(
    values: "Guesses", args: tuple[Any, ...], kwargs: Mapping[str, Any], result: torch.Tensor
) -> Knowledge:
    """``zeros.index_put_((rows, index), ones)`` is ``zeros.scatter_(1, index, 1)`` (deterministic algorithms)."""
    target, places, ones = args[:3]
    if len(places) != target.dim() or any(place is None for place in places) or not _is_all(values, ones, 1):
        return NOTHING
    return _one_hot_scatter(values, (target, target.dim() - 1, places[-1], 1), kwargs, result)


def _certain(density: float) -> Rule:
    return lambda *_: Knowledge(density=density)


def _inverted(values: "Guesses", args: tuple[Any, ...], _: Mapping[str, Any], __: Any) -> Knowledge:
    return _opposite(values.knowledge_of(args[0]))


def _largest(values: "Guesses", args: tuple[Any, ...], _: Mapping[str, Any], __: Any) -> Knowledge:
    """``max()`` of a mask is true where any element is."""
    density = values.knowledge_of(args[0]).density
    return NOTHING if density is None else Knowledge(density=float(density > 0))


def _any(values: "Guesses", args: tuple[Any, ...], _: Mapping[str, Any], __: Any) -> Knowledge:
    """Programs ask whether *any* element is something to catch exceptions: overflow, bad input, one more round."""
    density = values.knowledge_of(args[0]).density
    if density is None:
        values.assume("nothing exceptional is in the data: what is asked of any element holds for none")
    return Knowledge(density=float((density or 0.0) > 0), is_assumed=density is None)


def _any_along(values: "Guesses", args: tuple[Any, ...], kwargs: Mapping[str, Any], result: torch.Tensor) -> Knowledge:
    """``(top_k == expert).any(dim=-1)``: no two of a token's experts are the same, so true elements do not meet.

    Of other masks that is the most.
    """
    known, source = _any(values, args, kwargs, result), values.knowledge_of(args[0])
    if not source.density or not result.numel():
        return known
    met = args[0].numel() / result.numel()
    density = min(1.0, source.density * met)
    shares = source.shares and reduced(source.shares, _dims(args, kwargs), args[0], result)
    if shares is not None:
        shares = dataclasses.replace(shares, each=tuple(min(1.0, share * met) for share in shares.each))
    return dataclasses.replace(known, density=density, shares=shares, is_routed=source.is_routed)


def _dims(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[int]:
    dims = kwargs.get("dim", args[1] if len(args) > 1 else ())
    return [dims] if isinstance(dims, int) else dims or ()


def _all(values: "Guesses", args: tuple[Any, ...], _: Mapping[str, Any], __: Any) -> Knowledge:
    """Programs ask whether *all* elements are something to check what they rely on."""
    density = values.knowledge_of(args[0]).density
    if density is None:
        values.assume("checks of the data hold: what is asked of all elements is true")
    return Knowledge(density=float(density is None or density == 1), is_assumed=density is None)


def _filled(_: "Guesses", args: tuple[Any, ...], __: Mapping[str, Any], ___: Any) -> Knowledge:
    return Knowledge(density=float(args[1])) if args[1] in (0, 1) else NOTHING


def _diagonal(_: "Guesses", __: tuple[Any, ...], ___: Mapping[str, Any], result: torch.Tensor) -> Knowledge:
    return Knowledge(density=1 / max(*result.shape, 1))


def _joined(values: "Guesses", args: tuple[Any, ...], _: Mapping[str, Any], __: Any) -> Knowledge:
    """Parts of indices (edges of a graph, and the same ones backwards) are indices of as many classes as any has."""
    classes = [values.knowledge_of(part).classes for part in args[0]]
    return Knowledge(classes=max(each or 0 for each in classes)) if classes and all(classes) else NOTHING


def _combined(combine: Callable[[bool, bool], bool]) -> Rule:
    """``&`` and ``|`` of masks that are true everywhere or nowhere (which sequences of a batch are finished)."""

    def rule(values: "Guesses", args: tuple[Any, ...], _: Mapping[str, Any], __: Any) -> Knowledge:
        sides = [values.knowledge_of(side).density if isinstance(side, torch.Tensor) else None for side in args[:2]]
        if not all(side in (0.0, 1.0) for side in sides):
            return NOTHING
        return Knowledge(density=float(combine(*map(bool, sides))))

    return rule


def _drawn(_: "Guesses", __: tuple[Any, ...], ___: Mapping[str, Any], ____: Any) -> Knowledge:
    return Knowledge(uniform=True)


def _tossed(_: "Guesses", args: tuple[Any, ...], kwargs: Mapping[str, Any], __: Any) -> Knowledge:
    """``bernoulli(p)`` is true in a share p."""
    share = kwargs.get("p", args[1] if len(args) > 1 else None)
    return Knowledge(density=float(share)) if isinstance(share, int | float) else NOTHING


def _random_below(_: "Guesses", args: tuple[Any, ...], __: Mapping[str, Any], result: torch.Tensor) -> Knowledge:
    high = args[1] if isinstance(args[1], int) else args[0]
    if not isinstance(high, int) or high <= 0:
        return NOTHING
    # ``randint(2, shape, dtype=torch.bool)`` tosses coins: all draws but 0 are true.
    return Knowledge(density=1 - 1 / high) if result.dtype is torch.bool else Knowledge(classes=high)


def _counted(_: "Guesses", args: tuple[Any, ...], __: Mapping[str, Any], result: torch.Tensor) -> Knowledge:
    """``arange(end)``, ``arange(start, end[, step])``."""
    first, step = args[0] if len(args) > 1 else 0, args[2] if len(args) > 2 else 1
    if result.is_floating_point() or not result.numel() or step < 0:
        return NOTHING
    return Knowledge(last=int(first + (result.numel() - 1) * step))


RULES: Mapping[Any, Rule] = {
    aten.nonzero.default: _positions,
    aten.bincount.default: _even_counts,
    aten.histc.default: _even_counts,
    aten.scatter_add_.default: _scattered_counts,
    aten.repeat_interleave.Tensor: repeated,
    aten.index_select.default: looked_up,
    aten.sum.default: _summed,
    aten.sum.dim_IntList: _summed,
    aten.argmax.default: classes_of_dim(1),
    aten.argmin.default: classes_of_dim(1),
    aten.argsort.default: classes_of_dim(1),
    aten.multinomial.default: lambda _, args, __, ___: Knowledge(classes=args[0].shape[-1]),
    aten.eq.Scalar: _equal,
    aten.eq.Tensor: _equal,
    aten.ne.Scalar: _unequal,
    aten.lt.Scalar: _below,
    aten.ge.Scalar: _not_below,
    aten.scatter_.value: _one_hot_scatter,
    aten.scatter.value: _one_hot_scatter,
    aten.index_put_.default: _one_hot_put,
    aten.isnan.default: _certain(0.0),
    aten.isinf.default: _certain(0.0),
    aten.isfinite.default: _certain(1.0),
    aten.logical_not.default: _inverted,
    aten.bitwise_not.default: _inverted,
    aten.any.default: _any,
    aten.any.dim: _any_along,
    aten.any.dims: _any_along,
    aten._is_any_true.default: _any,
    aten.all.default: _all,
    aten.all.dim: _all,
    aten.all.dims: _all,
    aten._is_all_true.default: _all,
    aten.max.default: _largest,
    aten.ones.default: _certain(1.0),
    aten.ones_like.default: _certain(1.0),
    aten.zeros.default: _certain(0.0),
    aten.full.default: _filled,
    aten.cat.default: _joined,
    aten.stack.default: _joined,
    aten.eye.default: _diagonal,
    aten.eye.m: _diagonal,
    aten.bitwise_and.Tensor: _combined(operator.and_),
    aten.bitwise_or.Tensor: _combined(operator.or_),
    aten.rand.default: _drawn,
    aten.rand.generator: _drawn,
    aten.bernoulli.p: _tossed,
    aten.bernoulli_.float: _tossed,
    aten.randint.default: _random_below,
    aten.randint.low: _random_below,
    aten.randint.generator: _random_below,
    aten.randint.low_generator: _random_below,
    aten.arange.default: _counted,
    aten.arange.start: _counted,
    aten.arange.start_step: _counted,
}
RESULT_CLASSES: Mapping[Any, int] = {aten.topk.default: 2, aten.sort.default: 1, aten.max.dim: 1, aten.min.dim: 1}
"""Ops whose second result are indices into a dimension → position of the argument that names it."""

SORTS = frozenset({aten.sort.default})

CONSTANTS = frozenset({aten.lift_fresh.default, aten.lift_fresh_copy.default, aten.arange.default, aten.arange.start})
CONSTANTS |= {
    aten.arange.start_step,
    aten.zeros.default,
    aten.ones.default,
    aten.full.default,
    aten.scalar_tensor.default,
    aten.linspace.default,
}

KEEPERS = frozenset(
    {
        aten.view.default,
        aten._unsafe_view.default,
        aten.reshape.default,
        aten.permute.default,
        aten.transpose.int,
        aten.t.default,
        aten.unsqueeze.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.select.int,
        aten.unbind.int,
        aten.split.Tensor,
        aten.split_with_sizes.default,
        aten.slice.Tensor,
        aten.expand.default,
        aten.clone.default,
        aten.detach.default,
        aten.alias.default,
        aten._to_copy.default,
        aten.to.dtype,
        aten.contiguous.default,
        aten.flip.default,
        # What is known of a sparse tensor is what is known of its indices.
        aten._sparse_coo_tensor_with_dims_and_tensors.default,
        aten._indices.default,
    }
)
"""Ops whose results have the elements of their argument, or some of them."""
PICKERS = frozenset(
    {aten.select.int, aten.unbind.int, aten.split.Tensor, aten.split_with_sizes.default, aten.slice.Tensor}
)
"""Those of them whose results may lack some."""
