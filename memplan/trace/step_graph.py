"""The recorded ops as one ``torch.fx.Graph`` in execution order: planners read it, an interpreter can run it again."""

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor

from memplan.trace.refs import Ref

RefOf = Callable[[torch.Tensor], Ref]
"""The reference of a fake tensor, which is made if it has none."""


class StepGraph:
    """Writes nodes as ops run. Tensors become the nodes that made them, real tensors become constants."""

    def __init__(self, ref_of: RefOf) -> None:
        self.graph = torch.fx.Graph()
        self.constants: dict[str, torch.Tensor] = {}
        """What ``get_attr`` nodes name."""
        self._ref_of = ref_of

    def placeholder(self, name: str) -> torch.fx.Node:
        """A tensor from outside: parameter, buffer or input."""
        return self.graph.placeholder(name.replace(".", "_"))

    def call(self, func: Any, args: Any, kwargs: Any, label: str) -> torch.fx.Node:
        """An op; arguments as ``arguments`` returns them."""
        return self.graph.create_node("call_function", func, args, kwargs, label)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any], reads: list[Ref]) -> tuple[Any, Any]:
        """An op's arguments with nodes for tensors.

        Args:
            args: Positional arguments.
            kwargs: Keyword arguments.
            reads: Takes the references of all fake tensors among them, in order.
        """
        return (
            tuple([self._argument(value, reads) for value in args]),
            {key: self._argument(value, reads) for key, value in kwargs.items()},
        )

    def _argument(self, value: Any, reads: list[Ref]) -> Any:
        kind = type(value)
        if kind is FakeTensor:
            ref = self._ref_of(value)
            reads.append(ref)
            return self._node(ref)
        if kind is list or kind is tuple:
            return [self._argument(item, reads) for item in value]
        if isinstance(value, torch.Tensor):
            return self._constant(value)
        # Generators are not part of a graph: a rerun draws from the default one.
        return None if kind is torch.Generator else value

    def _node(self, ref: Ref) -> torch.fx.Node:
        for index in ref.path:
            ref.node = self.graph.create_node("call_function", operator.getitem, (ref.node, index))
        ref.path = ()
        return ref.node

    def _constant(self, tensor: torch.Tensor) -> torch.fx.Node:
        name = f"_constant_{len(self.constants)}"
        self.constants[name] = tensor
        return self.graph.create_node("get_attr", name)
