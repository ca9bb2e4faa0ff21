"""What the recorder knows of an operator before any call of it: looked up once, then read at every call."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from memplan.seam.operators import OpOverload, dispatch_has_kernel_for_dispatch_key
from memplan.tracing.nested import tensors_in
from memplan.tracing.scratch.rules import Rule, RuleTable
from memplan.tracing.sparse.table import BODIES, Body
from memplan.tracing.trilinear import OPERATOR, trilinear
from memplan.tracing.triton_kernels import body_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One overload, as the recorder sees it."""

    name: str
    """``aten.mm.default``."""
    composite: bool
    """Is it made of other ops under autograd (CompositeImplicitAutograd)?"""
    is_view: bool
    """Does its result share an argument's storage without writing it?"""
    is_silent: bool
    """Does it only write arguments and return nothing (``_foreach_add_``)? On fake tensors there is nothing to run."""
    mutated: tuple[int, ...]
    """Positions of positional arguments that it writes."""
    mutated_keywords: tuple[str, ...]
    """Keyword arguments that it writes (``out=``)."""
    flops: Callable[..., int] | None
    """torch's own formula, if it has one."""
    scratch: Rule | None
    """Rule for its kernel's scratch, if there is one."""
    body: Callable[..., Any] | None = None
    """Python that it is made of, which allocates for itself (``torch.library.triton_op``, ``_trilinear``)."""
    sparse: Body | None = None
    """What it does with the parts of sparse tensors."""

    def written(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """The tensors among a call's arguments that it writes."""
        if not self.mutated and not self.mutated_keywords:
            return []
        found = [args[index] for index in self.mutated if index < len(args)]
        return tensors_in([*found, *(kwargs.get(name) for name in self.mutated_keywords)])


def describe(func: OpOverload, rules: RuleTable, bodies: Mapping[str, Body] = BODIES) -> Operator:
    """Look an operator up in its schema, torch's FLOP registry and the tables of scratch and of sparse kernels."""
    arguments = func._schema.arguments
    written = [argument.alias_info is not None and argument.alias_info.is_write for argument in arguments]
    shares = any(result.alias_info is not None for result in func._schema.returns)
    is_view = shares and not any(written)
    return Operator(
        name=str(func),
        composite=_is_composite(func),
        is_view=is_view,
        is_silent=any(written) and not func._schema.returns,
        mutated=tuple(
            index
            for index, (argument, write) in enumerate(zip(arguments, written, strict=True))
            if write and not argument.kwarg_only
        ),
        mutated_keywords=tuple(
            argument.name for argument, write in zip(arguments, written, strict=True) if write and argument.kwarg_only
        ),
        flops=flops_formula(func),
        scratch=None if is_view else rules.get(str(func)),
        body=trilinear if str(func) == OPERATOR else body_of(func),
        sparse=bodies.get(str(func)),
    )


def flops_formula(func: OpOverload) -> Callable[..., int] | None:
    """Torch's own count of an op's floating-point operations, from its arguments and ``out_val``; None: it has none."""
    count: Callable[..., int] | None = flop_registry.get(func._overloadpacket)
    if count and func._overloadname.startswith("dtype"):
        return _without_dtype(count)
    return _of_equal_heads(count) if count and "_scaled_dot_product" in func._name else count


def _without_dtype(count: Callable[..., int]) -> Callable[..., int]:
    """Count a product whose result's type is an argument, for which torch's formulas have no place (torch 2.13)."""
    return lambda *args, **kwargs: count(*(each for each in args if not isinstance(each, torch.dtype)), **kwargs)


def _of_equal_heads(count: Callable[..., int]) -> Callable[..., int]:
    """Attention's count, with keys and values counted for every head of the queries: torch 2.6 refuses grouped ones."""

    def counted(*args: Any, **kwargs: Any) -> int:
        try:
            return count(*args, **kwargs)
        except AssertionError:
            heads = next(value.shape[1] for value in args if isinstance(value, torch.Tensor) and value.dim() == 4)
            whole = [(*v.shape[:1], heads, *v.shape[2:]) if _has_heads(v) else v for v in args]
            return count(*whole, **kwargs)

    return counted


def _has_heads(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 4


def _is_composite(func: OpOverload) -> bool:
    try:
        return bool(dispatch_has_kernel_for_dispatch_key(func._name, "CompositeImplicitAutograd"))
    except RuntimeError:
        return False
