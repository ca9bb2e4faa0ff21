"""Kinds of ops: those that may run more than once, and those that must not."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

_PROBABILITIES = ("dropout_p", "p")
"""Arguments of ops that are random only if they are above zero: ``_scaled_dot_product_flash_attention``."""

_UNREAD_STATISTICS = ("aten::_native_batch_norm_legit", "aten::native_batch_norm", "aten::_batch_norm_with_update")
"""Ops that take running statistics, and in training compute their other results without them."""

_COLLECTIVES = frozenset({"_c10d_functional", "c10d_functional", "_dtensor", "fsdp"})
"""Namespaces of ops that other ranks take part in."""


def schema_of(node: "Node") -> "torch.FunctionSchema | None":
    """The schema of an op; None for what is none (``getitem``, higher-order ops)."""
    from memplan.seam.operators import OpOverload

    # The one way to a schema from Python; fx itself uses it.
    return node.target._schema if isinstance(node.target, OpOverload) else None  # noqa: SLF001


def is_mutating(node: "Node") -> bool:
    """Does an op write to an argument?"""
    schema = schema_of(node)
    return schema is not None and schema.is_mutable


def has_effect(node: "Node") -> bool:
    """Does a node do something beyond its result? Then it must run once, where it stands."""
    from memplan.seam.operators import HigherOrderOperator

    schema = schema_of(node)
    if schema is not None:
        return schema.is_mutable or not schema.returns
    return isinstance(node.target, HigherOrderOperator)


def runs_once(node: "Node") -> bool:
    """Must an op run exactly once: random numbers, effects, collectives, ops whose inside is not known?

    And where backward cannot have the running statistics any more, ops that take them.
    """
    import torch

    schema = schema_of(node)
    if schema is None:
        return node.target is not getattr(torch.ops.higher_order, "flex_attention", None)
    if ignores_statistics(node) and not _saves_unchecked():
        return True
    return has_effect(node) or is_random(node) or schema.name.partition("::")[0] in _COLLECTIVES


def is_random(node: "Node") -> bool:
    """Does an op draw random numbers with the arguments that it has?"""
    import torch

    schema = schema_of(node)
    if schema is None or torch.Tag.nondeterministic_seeded not in node.target.tags:  # type: ignore[union-attr]
        return False
    given = {each.name: each.default_value for each in schema.arguments}
    given.update(zip(given, node.args, strict=False))
    given.update(node.kwargs)
    return not any(given.get(name) == 0.0 for name in _PROBABILITIES if isinstance(given.get(name), float))


def ignores_statistics(node: "Node") -> bool:
    """Are an op's results for backward the same whatever running statistics it reads?"""
    schema = schema_of(node)
    return schema is not None and schema.name.startswith(_UNREAD_STATISTICS)


def _saves_unchecked() -> bool:
    """Can backward read an input that was written to after forward had read it?

    Older AOTAutograds save whatever backward reads as autograd does, which refuses such tensors.
    """
    from memplan.seam.functorch import ViewAndMutationMeta

    return hasattr(ViewAndMutationMeta, "tensors_saved_for_backwards_no_vc_check_slice")
