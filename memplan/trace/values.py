"""Values that fake tensors do not have: what ``.item()`` returns, and how many elements a mask selects.

Three kinds of knowledge travel with tensors, each where it is known:

* the *value* itself, of small tensors made from constants (a loop counter, an optimizer's ``step``): ops on such
  tensors are also run for real;
* the *density* of a mask: the share of elements that are true or one (one-hot routing over E experts: 1/E);
* the number of *classes* of an index tensor (``topk`` over E experts, ``randint(0, V)``).

Whatever is not known is assumed, and the report says so: routing is balanced (or, with ``worst``, everything goes to
every expert), a mask selects everything, a comparison holds, numbers are one.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any, Protocol

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._pytree import tree_map

from memplan.trace.nested import tensors_in

aten = torch.ops.aten

SMALL = 256
"""Most elements of a tensor whose value is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What is known of a tensor's elements."""

    value: torch.Tensor | None = None
    """The elements themselves, a real tensor."""
    density: float | None = None
    """Share of true (non-zero) elements."""
    classes: int | None = None
    """Elements are indices below this, evenly spread."""


NOTHING = Knowledge()


class Known(Protocol):
    """Something that carries knowledge (the recorder's reference on a tensor)."""

    knowledge: Knowledge


class Values:
    """Answers ops that need data, and keeps track of what is known.

    Args:
        worst_case: Count every element as selected instead of assuming balance.
        knowledge_of: What is known of a fake tensor.
    """

    def __init__(
        self, *, worst_case: bool, knowledge_of: Callable[[torch.Tensor], Knowledge] = lambda _: NOTHING
    ) -> None:
        self.worst_case = worst_case
        self.knowledge_of = knowledge_of
        self.assumptions: dict[str, None] = {}
        """Assumptions made so far, in order, each a sentence."""

    def run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run one op on fake tensors, with an answer of our own where it needs data."""
        answer = _ANSWERS.get(func)
        if answer is not None:
            return answer(self, func, args, kwargs)
        return func(*args, **kwargs)

    def learn(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, known: Sequence[Known]
    ) -> Sequence[Knowledge]:
        """What is known of each tensor in an op's result; empty for nothing at all.

        Args:
            func: The op, which has run.
            args: Its arguments.
            kwargs: Its keyword arguments.
            result: Its result.
            known: What its tensor arguments carry, in order.
        """
        if func in _CONSTANTS or (known and all(each.knowledge.value is not None for each in known)):
            values = self._run_for_real(func, args, kwargs, result)
            if values:
                return [Knowledge(value=value) for value in values]
        rule = _RULES.get(func)
        if rule is not None:
            return (rule(self, args, kwargs, result),)
        if func in _RESULT_CLASSES:
            return NOTHING, _classes_of_dim(_RESULT_CLASSES[func])(self, args, kwargs, result)
        if known and func in _KEEPERS:
            first = known[0].knowledge
            return (Knowledge(density=first.density, classes=first.classes),)
        return ()

    def _run_for_real(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
    ) -> list[torch.Tensor]:
        """The op run on known values, in-place effects included; empty where the result is not small."""
        if any(tensor.numel() > SMALL for tensor in tensors_in(result)):
            return []
        with unset_fake_temporarily():
            real_args, real_kwargs = tree_map(self._real, (args, dict(kwargs)))
            values = tensors_in(func(*real_args, **real_kwargs))
            # A constant of the user's own must not change when an in-place op changes what is known of its copy.
            return [value.clone() for value in values] if func in _CONSTANTS else values

    def _real(self, value: Any) -> Any:
        return self.knowledge_of(value).value if isinstance(value, FakeTensor) else value

    def selected(self, mask: torch.Tensor) -> int:
        """How many elements of a mask are true."""
        known = self.knowledge_of(mask)
        if known.value is not None:
            with unset_fake_temporarily():
                return int(torch.count_nonzero(known.value))
        if known.density is None or self.worst_case:
            self.assume("masks and other data-dependent selections take every element")
            return mask.numel()
        if 0 < known.density < 1:
            self.assume("tokens are routed evenly: every expert or class gets the same share")
        return ceil(mask.numel() * known.density)

    def assume(self, sentence: str) -> None:
        """Note an assumption for the report."""
        self.assumptions[sentence] = None


# ---------------------------------------------------------------------- answers: ops that fake tensors cannot run

_Answer = Callable[[Values, Any, tuple[Any, ...], Mapping[str, Any]], Any]


def _item(values: Values, _: Any, args: tuple[Any, ...], __: Mapping[str, Any]) -> Any:
    tensor = args[0]
    value = values.knowledge_of(tensor).value
    if value is None:
        value = getattr(tensor, "constant", None)
    if value is not None:
        with unset_fake_temporarily():
            return value.item()
    density = values.knowledge_of(tensor).density
    if tensor.dtype is torch.bool and density in (0.0, 1.0):
        return bool(density)
    if tensor.dtype is torch.bool:
        values.assume("data-dependent conditions hold")
        return True
    values.assume("numbers read from tensors (.item()) are 1")
    return 1.0 if tensor.is_floating_point() else 1


def _nonzero(values: Values, _: Any, args: tuple[Any, ...], __: Mapping[str, Any]) -> Any:
    return torch.empty((values.selected(args[0]), args[0].dim()), dtype=torch.int64)


def _indexed(values: Values, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """``x[mask]``: a mask is as many index vectors as it has dimensions (``expandTensors``, ATen IndexingUtils.h)."""
    indices: list[torch.Tensor | None] = []
    for index in args[1]:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            count = values.selected(index)
            indices += [torch.empty(count, dtype=torch.int64) for _ in range(index.dim())]
        else:
            indices.append(index)
    return func(args[0], indices, *args[2:], **kwargs)


def _masked_select(values: Values, _: Any, args: tuple[Any, ...], __: Mapping[str, Any]) -> Any:
    shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
    share = values.selected(args[1]) / max(args[1].numel(), 1)
    return torch.empty(ceil(prod(shape) * share), dtype=args[0].dtype)


def _bincount(values: Values, _: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    least = kwargs.get("minlength", args[2] if len(args) > 2 else 0)
    weights = kwargs.get("weights", args[1] if len(args) > 1 else None)
    classes = values.knowledge_of(args[0]).classes or least
    dtype = torch.int64 if weights is None else weights.dtype
    return torch.empty(max(least, classes, 1), dtype=dtype)


def _unique(values: Values, func: Any, args: tuple[Any, ...], _: Mapping[str, Any]) -> Any:
    """Unique values: all elements are (upper bound); consecutive runs: there is one."""
    source = args[0]
    runs = func is aten.unique_consecutive.default
    values.assume("runs of equal values are one run" if runs else "values counted by unique() are all different")
    count = 1 if runs else source.numel()
    inverse = torch.empty(source.shape, dtype=torch.int64)
    return torch.empty(count, dtype=source.dtype), inverse, torch.empty(count, dtype=torch.int64)


def _repeat_interleave(values: Values, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    size = kwargs.get("output_size")
    known = values.knowledge_of(args[0]).value
    if size is None and known is not None:
        size = int(known.sum())
    if size is None:
        values.assume("repeat counts read from tensors are 1")
        size = args[0].numel()
    return func(args[0], output_size=size)


def _grouped_mm(_: Values, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Its shape function takes bf16 alone; for other types kernels run one ``mm`` a group (GroupedBlas.cpp)."""
    first, second = (operand.to(torch.bfloat16) for operand in args[:2])
    return func(first, second, *args[2:], **kwargs).to(args[0].dtype)


_ANSWERS: Mapping[Any, _Answer] = {
    aten._local_scalar_dense.default: _item,
    aten.nonzero.default: _nonzero,
    aten.index.Tensor: _indexed,
    aten.masked_select.default: _masked_select,
    aten.bincount.default: _bincount,
    aten._unique2.default: _unique,
    aten.unique_consecutive.default: _unique,
    aten.repeat_interleave.Tensor: _repeat_interleave,
    aten._grouped_mm.default: _grouped_mm,
}

# ---------------------------------------------------------------------- rules: what is known of results

_Rule = Callable[[Values, tuple[Any, ...], Mapping[str, Any], Any], Knowledge]


def _positions(_: Values, args: tuple[Any, ...], __: Mapping[str, Any], result: torch.Tensor) -> Knowledge:
    """``nonzero`` of a vector that is all true: its positions are known."""
    mask = args[0]
    if mask.dim() == 1 and result.shape[0] == mask.numel() <= SMALL:
        with unset_fake_temporarily():
            return Knowledge(value=torch.arange(mask.numel()).unsqueeze(1))
    return Knowledge(classes=max(mask.shape, default=1))


def _even_counts(values: Values, args: tuple[Any, ...], _: Mapping[str, Any], result: torch.Tensor) -> Knowledge:
    classes = result.numel()
    if classes > SMALL:
        return NOTHING
    values.assume("tokens are routed evenly: every expert or class gets the same share")
    each, rest = divmod(args[0].numel(), classes)
    with unset_fake_temporarily():
        return Knowledge(value=torch.tensor([each + (index < rest) for index in range(classes)], dtype=result.dtype))


def _classes_of_dim(position: int) -> _Rule:
    def rule(_: Values, args: tuple[Any, ...], kwargs: Mapping[str, Any], __: Any) -> Knowledge:
        dim = kwargs.get("dim", args[position] if len(args) > position else -1)
        source = args[0]
        return Knowledge(classes=source.shape[dim] if dim is not None and source.dim() else source.numel())

    return rule


def _equal(values: Values, args: tuple[Any, ...], _: Mapping[str, Any], __: Any) -> Knowledge:
    """``index == k``, ``index == arange(E)``: true once in as many classes as there are; ``mask == 0`` inverts it."""
    sides = [values.knowledge_of(side) for side in args[:2] if isinstance(side, torch.Tensor)]
    if sides[0].density is not None and not isinstance(args[1], torch.Tensor) and args[1] == 0:
        return Knowledge(density=1 - sides[0].density)
    classes = [side.classes for side in sides if side.classes] + [
        side.value.numel() for side in sides if side.value is not None and side.value.numel() > 1
    ]
    return Knowledge(density=1 / max(classes)) if classes else NOTHING


def _one_hot_scatter(_: Values, args: tuple[Any, ...], __: Mapping[str, Any], result: torch.Tensor) -> Knowledge:
    """``zeros.scatter_(dim, index, 1)``, which is ``one_hot``."""
    return Knowledge(density=args[2].numel() / max(result.numel(), 1)) if args[3] == 1 else NOTHING


def _certain(density: float) -> _Rule:
    return lambda *_: Knowledge(density=density)


def _inverted(values: Values, args: tuple[Any, ...], _: Mapping[str, Any], __: Any) -> Knowledge:
    density = values.knowledge_of(args[0]).density
    return NOTHING if density is None else Knowledge(density=1 - density)


def _any(values: Values, args: tuple[Any, ...], _: Mapping[str, Any], __: Any) -> Knowledge:
    density = values.knowledge_of(args[0]).density
    return NOTHING if density is None else Knowledge(density=float(density > 0))


def _filled(_: Values, args: tuple[Any, ...], __: Mapping[str, Any], ___: Any) -> Knowledge:
    return Knowledge(density=float(args[1])) if args[1] in (0, 1) else NOTHING


def _uniform(combine: Callable[[bool, bool], bool]) -> _Rule:
    """``&`` and ``|`` of masks that are true everywhere or nowhere (which sequences of a batch are finished)."""

    def rule(values: Values, args: tuple[Any, ...], _: Mapping[str, Any], __: Any) -> Knowledge:
        sides = [values.knowledge_of(side).density if isinstance(side, torch.Tensor) else None for side in args[:2]]
        if not all(side in (0.0, 1.0) for side in sides):
            return NOTHING
        return Knowledge(density=float(combine(*map(bool, sides))))

    return rule


def _random_below(_: Values, args: tuple[Any, ...], __: Mapping[str, Any], ___: Any) -> Knowledge:
    high = args[1] if isinstance(args[1], int) else args[0]
    return Knowledge(classes=high if isinstance(high, int) and high > 0 else None)


_RULES: Mapping[Any, _Rule] = {
    aten.nonzero.default: _positions,
    aten.bincount.default: _even_counts,
    aten.histc.default: _even_counts,
    aten.argmax.default: _classes_of_dim(1),
    aten.argmin.default: _classes_of_dim(1),
    aten.argsort.default: _classes_of_dim(1),
    aten.eq.Scalar: _equal,
    aten.eq.Tensor: _equal,
    aten.scatter_.value: _one_hot_scatter,
    aten.scatter.value: _one_hot_scatter,
    aten.isnan.default: _certain(0.0),
    aten.isinf.default: _certain(0.0),
    aten.isfinite.default: _certain(1.0),
    aten.logical_not.default: _inverted,
    aten.bitwise_not.default: _inverted,
    aten.any.default: _any,
    aten.any.dim: _any,
    aten.max.default: _any,
    aten.ones.default: _certain(1.0),
    aten.zeros.default: _certain(0.0),
    aten.full.default: _filled,
    aten.bitwise_and.Tensor: _uniform(operator.and_),
    aten.bitwise_or.Tensor: _uniform(operator.or_),
    aten.randint.default: _random_below,
    aten.randint.low: _random_below,
}
_RESULT_CLASSES: Mapping[Any, int] = {aten.topk.default: 2, aten.sort.default: 1, aten.max.dim: 1, aten.min.dim: 1}
"""Ops whose second result are indices into a dimension → position of the argument that names it."""

_CONSTANTS = frozenset({aten.lift_fresh.default, aten.lift_fresh_copy.default, aten.arange.default, aten.arange.start})
_CONSTANTS |= {
    aten.arange.start_step,
    aten.zeros.default,
    aten.ones.default,
    aten.full.default,
    aten.scalar_tensor.default,
}

_KEEPERS = frozenset(
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
        aten.slice.Tensor,
        aten.expand.default,
        aten.clone.default,
        aten.detach.default,
        aten.alias.default,
        aten._to_copy.default,
        aten.to.dtype,
        aten.contiguous.default,
    }
)
TEACHERS = frozenset(_RULES) | frozenset(_RESULT_CLASSES) | _CONSTANTS
"""Ops whose results something is known of whatever their arguments are."""
