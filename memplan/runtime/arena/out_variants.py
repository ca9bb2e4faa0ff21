"""Ops that write into memory they are given: the ``out`` overload of each, where PyTorch has one."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import torch
from torch.fx import Node

from memplan.seam.operators import OpOverload
from memplan.seam.pytree import tree_leaves

aten = torch.ops.aten

Writer = Callable[[Sequence[torch.Tensor], tuple[Any, ...], dict[str, Any]], object]
"""Runs an op on (arguments, named arguments) into the tensors that are given first."""


def _copy(into: Sequence[torch.Tensor], args: tuple[Any, ...], _: dict[str, Any]) -> None:
    into[0].copy_(args[0])


def _relu(into: Sequence[torch.Tensor], args: tuple[Any, ...], _: dict[str, Any]) -> None:
    aten.clamp_min.out(args[0], 0, out=into[0])


def _embedding(into: Sequence[torch.Tensor], args: tuple[Any, ...], _: dict[str, Any]) -> None:
    weight, indices = args[:2]
    aten.index_select.out(weight, 0, indices.reshape(-1), out=into[0].view(-1, weight.shape[1]))


WRITERS: Final[dict[OpOverload, Writer]] = {
    # Their generated ``out`` would allocate a result of its own and copy it.
    aten.clone.default: _copy,
    aten._to_copy.default: _copy,  # noqa: SLF001 - an op's name.
    # aten/src/ATen/native/Activation.cpp: ``relu`` is ``at::clamp_min(self, 0)``.
    aten.relu.default: _relu,
    # aten/src/ATen/native/Embedding.cpp: ``embedding`` selects rows by the flattened indices.
    aten.embedding.default: _embedding,
}
"""Ops whose own way is written down here, with the source that it follows."""


@cache
def out_overload(op: OpOverload) -> OpOverload | None:
    """The overload of an op that takes its results as ``out`` arguments and has a kernel of its own for that.

    Most functional ops have an ``out`` overload that PyTorch generates: it calls the functional one and copies.
    """
    wanted = [(argument.name, str(argument.type)) for argument in op._schema.arguments]  # noqa: SLF001
    for name in op._overloadpacket.overloads():  # type: ignore[no-untyped-call] # noqa: SLF001
        candidate = getattr(op._overloadpacket, name)  # noqa: SLF001
        arguments = candidate._schema.arguments  # noqa: SLF001
        given = [(argument.name, str(argument.type)) for argument in arguments if not argument.is_out]
        if given == wanted and len(given) < len(arguments) and torch.Tag.generated not in candidate.tags:
            return candidate  # type: ignore[no-any-return]
    return None


def writer(op: OpOverload) -> Writer | None:
    """How to run an op into memory that it is given; None where it allocates its results itself."""
    if op in WRITERS:
        return WRITERS[op]
    variant = out_overload(op)
    if variant is None:
        return None
    names = [argument.name for argument in variant._schema.arguments if argument.is_out]  # noqa: SLF001

    def write(into: Sequence[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        variant(*args, **kwargs, **dict(zip(names, into, strict=True)))

    return write


def written(node: Node) -> tuple[Node, ...]:
    """The arguments into which a node's op writes."""
    assert isinstance(node.target, OpOverload)  # noqa: S101 - asked of ops only.
    schema = node.target._schema.arguments  # noqa: SLF001
    given = {argument.name: value for argument, value in zip(schema, node.args, strict=False)} | node.kwargs
    into = [given.get(a.name) for a in schema if a.alias_info is not None and a.alias_info.is_write]
    return tuple(leaf for leaf in tree_leaves(into) if isinstance(leaf, Node))
