"""Writes the calls of a step down as ops run."""

import operator
from collections.abc import Callable
from typing import Any

import torch

from memplan.seam.fake import FakeTensor
from memplan.tracing.call_graph import CallGraph, CallNode
from memplan.tracing.knowledge import NOTHING
from memplan.tracing.records import Op
from memplan.tracing.refs import Ref, knowledge_of, pinned

RefOf = Callable[[torch.Tensor], Ref]
"""The reference of a fake tensor, which is made if it has none."""


class StepGraph:
    """Writes calls down as ops run. Tensors become the calls that made them, real tensors become constants."""

    def __init__(self, ref_of: RefOf) -> None:
        self.graph = CallGraph[Op]()
        self._ref_of = ref_of

    def placeholder(self, name: str) -> CallNode[Op]:
        """A tensor from outside: parameter, buffer or input."""
        return self.graph.add(CallNode("placeholder", name))

    def call(self, func: Any, args: Any, kwargs: Any) -> CallNode[Op]:
        """An op; arguments as ``arguments`` returns them."""
        return self.graph.add(CallNode("call_function", func, args, kwargs))

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any], reads: list[Ref]) -> tuple[Any, Any]:
        """An op's arguments with calls for tensors.

        Args:
            args: Positional arguments.
            kwargs: Keyword arguments.
            reads: Takes the references of all tensors of the step among them, in order.
        """
        return (
            tuple([self._argument(value, reads) for value in args]),
            {key: self._argument(value, reads) for key, value in kwargs.items()},
        )

    def _argument(self, value: Any, reads: list[Ref]) -> Any:
        kind = type(value)
        if kind is FakeTensor or (kind is torch.Tensor and (pinned(value) or knowledge_of(value) is not NOTHING)):
            # A real tensor that an op made (the batch sizes of a packed sequence) is no constant.
            ref = self._ref_of(value)
            reads.append(ref)
            return self._maker(ref)
        if kind is list or kind is tuple:
            return [self._argument(item, reads) for item in value]
        if isinstance(value, torch.Tensor):
            return self._constant(value)
        # Generators are not part of a graph: a rerun draws from the default one.
        return None if kind is torch.Generator else value

    def _maker(self, ref: Ref) -> CallNode[Op]:
        for index in ref.path:
            ref.node = self.graph.add(CallNode("call_function", operator.getitem, (ref.node, index)))
        ref.path = ()
        return ref.node

    def _constant(self, tensor: torch.Tensor) -> CallNode[Op]:
        name = f"_constant_{len(self.graph.constants)}"
        self.graph.constants[name] = tensor
        return self.graph.add(CallNode("get_attr", name))
