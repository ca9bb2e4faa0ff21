"""What may run more than once."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import Node

_PROBABILITIES = ("dropout_p", "p")
"""Arguments of ops that are random only if they are above zero: ``_scaled_dot_product_flash_attention``."""

_UNREAD_STATISTICS = ("aten::_native_batch_norm_legit", "aten::native_batch_norm", "aten::_batch_norm_with_update")
"""Ops that take running statistics, and in training compute their other results without them."""


def runs_once(node: "Node") -> bool:
    """Must an op run exactly once: random numbers, effects, collectives, ops whose inside is not known?"""
    from torch._ops import HigherOrderOperator, OpOverload

    if isinstance(node.target, HigherOrderOperator):
        return node.target.name() != "flex_attention"
    if not isinstance(node.target, OpOverload):
        return True
    return (
        is_random(node)
        or node.target._schema.is_mutable
        or not node.target._schema.returns
        or node.target.namespace in {"_c10d_functional", "c10d_functional", "_dtensor", "fsdp"}
    )


def is_random(node: "Node") -> bool:
    """Does an op draw random numbers with the arguments that it has?"""
    import torch
    from torch._ops import OpOverload

    if not isinstance(node.target, OpOverload) or torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    arguments = dict(zip((each.name for each in node.target._schema.arguments), node.args, strict=False))
    defaults = {each.name: each.default_value for each in node.target._schema.arguments}
    given = {**defaults, **arguments, **node.kwargs}
    return not any(given.get(name) == 0.0 for name in _PROBABILITIES if isinstance(given.get(name), float))


def ignores_statistics(node: "Node") -> bool:
    """Are an op's results for backward the same whatever running statistics it reads?"""
    from torch._ops import OpOverload

    return isinstance(node.target, OpOverload) and node.target._schema.name.startswith(_UNREAD_STATISTICS)
