"""What a joint graph is, whatever its nodes are called and in whatever order its inputs come."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from memplan.runtime.partition.records import JointOp
from memplan.runtime.partition.split import is_backward_input
from memplan.seam.pytree import tree_leaves


def ops_of(joint: GraphModule) -> tuple[Node, ...]:
    """Everything in a graph but inputs and the output, in its order."""
    return tuple(node for node in joint.graph.nodes if node.op not in {"placeholder", "output"})


def described(node: Node) -> JointOp:
    """An op as a plan file names it."""
    return JointOp(name=node.name, op=str(node.target), result=_value(node))


def structure(joint: GraphModule, forward_outputs: int) -> str:
    """Hash of a joint graph, dead code left out: its ops, their arguments and results.

    Two graphs with the same one run the same ops in the same order on tensors of the same shapes.
    """
    # ``torch.compile`` and AOTAutograd order and name a graph's inputs differently: first use numbers them.
    numbers: dict[Node, str] = {}

    def number(node: Node) -> str:
        if node not in numbers:
            side = "backward" if is_backward_input(node) else "forward"
            numbers[node] = f"%{len(numbers)}:{side}:{_value(node)}" if node.op == "placeholder" else f"%{len(numbers)}"
        return numbers[node]

    lines = [[str(node.target), _arguments(node, number), number(node), _value(node)] for node in ops_of(joint)]
    results = tree_leaves(joint.graph.output_node().args[0])
    # Buffers that forward overwrites and gradients come in the order of the inputs.
    halves = [
        sorted(number(each) for each in half if isinstance(each, Node))
        for half in (results[:forward_outputs], results[forward_outputs:])
    ]
    content = json.dumps([lines, *halves])
    return hashlib.sha256(content.encode()).hexdigest()


def _arguments(node: Node, number: Callable[[Node], str]) -> str:
    return repr(map_arg((node.args, dict(sorted(node.kwargs.items()))), number))


def _value(node: Node) -> str:
    return ", ".join(map(_leaf, tree_leaves(node.meta.get("val"))))


def _leaf(leaf: Any) -> str:
    if not isinstance(leaf, Tensor):
        return type(leaf).__name__
    kind = str(leaf.dtype).removeprefix("torch.")
    return f"{leaf.device.type} {kind}{list(leaf.shape)}"
