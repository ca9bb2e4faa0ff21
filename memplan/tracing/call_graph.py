"""The recorded calls in execution order: planners read them, and made into a ``torch.fx.Graph`` they can run again.

A call is written down in a tenth of the time that an fx node takes to make, and few readers want the nodes.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

if TYPE_CHECKING:
    import torch
    import torch.fx

Record = TypeVar("Record")
"""What is known of an op: ``memplan.tracing.records.Op``, which needs no graph to be."""


class CallNode(Generic[Record]):
    """One node of the graph: a call, or a tensor from outside."""

    __slots__ = ("args", "kind", "kwargs", "op", "target")

    def __init__(
        self,
        kind: Literal["call_function", "placeholder", "get_attr"],
        target: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] = {},
    ) -> None:
        self.kind = kind
        """What fx calls a node's op."""
        self.target = target
        """The function; the name of a tensor from outside."""
        self.args, self.kwargs = args, kwargs
        """Calls stand for the tensors that they return."""
        self.op: Record | None = None
        """Its record; None for what is no op (a tensor picked from a result of several)."""


class CallGraph(Generic[Record]):
    """What a trace keeps of its calls."""

    def __init__(self) -> None:
        self.nodes: list[CallNode[Record]] = []
        """In execution order."""
        self.constants: dict[str, torch.Tensor] = {}
        """What ``get_attr`` nodes name."""

    def add(self, call: CallNode[Record]) -> CallNode[Record]:
        """Write one down."""
        self.nodes.append(call)
        return call

    def fx(self) -> "torch.fx.Graph":
        """The calls as an fx graph.

        Each node's ``meta["op"]`` is its record; a placeholder's ``meta["tensor"]`` is the name of its parameter,
        buffer or batch, of which the node's own name is made.
        """
        import torch.fx

        graph = torch.fx.Graph()
        made: dict[CallNode[Record], torch.fx.Node] = {}
        for call in self.nodes:
            # Marks of torch.profiler.record_function compute nothing, and what they hand on is no value of a graph's.
            if getattr(call.target, "namespace", "") == "profiler":
                continue
            args = tuple(_with_nodes(value, made) for value in call.args)
            kwargs = {key: _with_nodes(value, made) for key, value in call.kwargs.items()}
            if call.kind == "placeholder":
                node = _placeholder(graph, call.target)
            else:
                node = graph.create_node(call.kind, call.target, args, kwargs)
            made[call] = node
            if call.op is not None:
                node.meta["op"] = call.op
        return graph


def _placeholder(graph: "torch.fx.Graph", tensor: str) -> "torch.fx.Node":
    """Placeholders are arguments of a function: each needs a name that Python takes, and that no other has."""
    node = graph.placeholder(re.sub(r"\W", "_", tensor))
    node.target = node.name
    node.meta["tensor"] = tensor
    return node


def _with_nodes(value: Any, made: "Mapping[CallNode[Any], torch.fx.Node]") -> Any:
    if isinstance(value, CallNode):
        return made[value]
    return [_with_nodes(item, made) for item in value] if type(value) is list else value
