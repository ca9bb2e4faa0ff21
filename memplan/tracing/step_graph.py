"""The recorded calls in execution order: planners read them, and made into a ``torch.fx.Graph`` they can run again.

A call is written down in a tenth of the time that an fx node takes to make, and few readers want the nodes.
"""

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.fx

from memplan.seam.fake import FakeTensor
from memplan.tracing.refs import Ref, pinned

if TYPE_CHECKING:
    from memplan.tracing.records import Op

RefOf = Callable[[torch.Tensor], Ref]
"""The reference of a fake tensor, which is made if it has none."""


class Node:
    """One node of the graph: a call, or a tensor from outside."""

    __slots__ = ("args", "kind", "kwargs", "name", "op", "target")

    def __init__(
        self,
        kind: Literal["call_function", "placeholder", "get_attr"],
        target: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] = {},
        name: str | None = None,
    ) -> None:
        self.kind = kind
        """What fx calls a node's op."""
        self.target = target
        """The function; the name of a tensor from outside."""
        self.args, self.kwargs = args, kwargs
        """Calls stand for the tensors that they return."""
        self.name = name
        """The node's; None leaves it to fx."""
        self.op: Op | None = None
        """Its record; None for what is no op (a tensor picked from a result of several)."""


class CallGraph:
    """What a trace keeps of its calls."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        """In execution order."""
        self.constants: dict[str, torch.Tensor] = {}
        """What ``get_attr`` nodes name."""

    def add(self, call: Node) -> Node:
        """Write one down."""
        self.nodes.append(call)
        return call

    def fx(self) -> torch.fx.Graph:
        """The calls as an fx graph, each node's ``meta["op"]`` its record."""
        graph = torch.fx.Graph()
        made: dict[Node, torch.fx.Node] = {}
        for call in self.nodes:
            args = tuple(_with_nodes(value, made) for value in call.args)
            kwargs = {key: _with_nodes(value, made) for key, value in call.kwargs.items()}
            node = (
                graph.placeholder(call.target)
                if call.kind == "placeholder"
                else graph.create_node(call.kind, call.target, args, kwargs, call.name)
            )
            made[call] = node
            if call.op is not None:
                node.meta["op"] = call.op
        return graph


def _with_nodes(value: Any, made: Mapping[Node, torch.fx.Node]) -> Any:
    if isinstance(value, Node):
        return made[value]
    return [_with_nodes(item, made) for item in value] if type(value) is list else value


class StepGraph:
    """Writes calls down as ops run. Tensors become the calls that made them, real tensors become constants."""

    def __init__(self, ref_of: RefOf) -> None:
        self.graph = CallGraph()
        self._ref_of = ref_of

    def placeholder(self, name: str) -> Node:
        """A tensor from outside: parameter, buffer or input."""
        return self.graph.add(Node("placeholder", name.replace(".", "_")))

    def call(self, func: Any, args: Any, kwargs: Any, label: str) -> Node:
        """An op; arguments as ``arguments`` returns them."""
        return self.graph.add(Node("call_function", func, args, kwargs, label))

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
        if kind is FakeTensor or (kind is torch.Tensor and pinned(value) is not None):
            # A real tensor that an op of the step made (the batch sizes of a packed sequence) is no constant.
            ref = self._ref_of(value)
            reads.append(ref)
            return self._maker(ref)
        if kind is list or kind is tuple:
            return [self._argument(item, reads) for item in value]
        if isinstance(value, torch.Tensor):
            return self._constant(value)
        # Generators are not part of a graph: a rerun draws from the default one.
        return None if kind is torch.Generator else value

    def _maker(self, ref: Ref) -> Node:
        for index in ref.path:
            ref.node = self.graph.add(Node("call_function", operator.getitem, (ref.node, index)))
        ref.path = ()
        return ref.node

    def _constant(self, tensor: torch.Tensor) -> Node:
        name = f"_constant_{len(self.graph.constants)}"
        self.graph.constants[name] = tensor
        return self.graph.add(Node("get_attr", name))
