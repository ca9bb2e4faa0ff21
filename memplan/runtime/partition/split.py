"""A joint graph cut in two, every op where a schedule puts it, as often as the schedule says.

Torch's own partitioners put each recomputed op once into the backward graph, ahead of everything, so whole chains are
alive at the same time. Here an op that is computed again has a copy for each time, just where it is listed::

    forward:   a b c                  returns the outputs, and what backward reads before it is computed again
    backward:  a b | c' | b | a'      b and a have copies of their own

What is not listed (views, ``getitem``) costs no memory: it is written where it is first read, again after each
recomputation of what it is a view of.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Graph, GraphModule, Node

from memplan.errors import UsageError
from memplan.seam import functorch
from memplan.seam.operators import OpOverload
from memplan.seam.pytree import tree_leaves

_UNCHECKED = "saved_tensor_with_no_vc_check"
"""Key of a node's ``meta`` (torch/_functorch/_aot_autograd/graph_compile.py); torch 2.6 does not read it."""
_STATISTICS = frozenset({"running_mean", "running_var"})
"""Arguments of batch normalisation (torch's native_functions.yaml)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which ops run, in order; an op may be listed several times."""

    forward: tuple[Node, ...]
    """Until all of forward's results are there."""
    backward: tuple[Node, ...]
    """After that."""


def split(joint: GraphModule, order: Order, num_forward_outputs: int) -> tuple[GraphModule, GraphModule]:
    """Cut a joint graph.

    Args:
        joint: AOTAutograd's joint graph: primals and tangents to forward's results and gradients.
        order: Every op that makes a tensor of its own must be listed.
        num_forward_outputs: How many of the joint graph's results are forward's.

    Returns:
        Forward, which returns its results and after them what backward reads, and backward, which takes that and the
        tangents.

    Raises:
        UsageError: The order lists an op before what it reads, or one that needs tangents in forward.
    """
    output = joint.graph.output_node()
    results = tree_leaves(output.args[0])
    descriptions = tree_leaves(output.meta.get("desc", [None] * len(results)))
    gradients = results[num_forward_outputs:]
    saved = _saved(joint, order, gradients)
    forward = _forward(joint, order, results[:num_forward_outputs], saved)
    backward = _backward(joint, order, gradients, saved)
    _describe(forward, [*descriptions[:num_forward_outputs], *_saved_descriptions(saved)])
    _describe(backward, descriptions[num_forward_outputs:])
    return GraphModule(joint, forward), GraphModule(joint, backward)


@dataclass(slots=True, kw_only=True)
class _Writer:
    """Copies nodes of the joint graph into a graph of its own."""

    listed: frozenset[Node]
    """Computed only where they are listed."""
    absent: Callable[[Node], Node]
    """Answers for a listed node or an input that is not there."""
    graph: Graph = field(default_factory=Graph)
    """What is written."""
    values: dict[Node, Node] = field(default_factory=dict)
    """Each node's latest copy."""
    readers: dict[Node, list[Node]] = field(default_factory=dict)
    """What was derived from each node: it ends with the node's copy."""

    def compute(self, node: Node) -> None:
        """Write a listed node once more."""
        copy = self.graph.node_copy(node, self.value)
        self._forget(node)
        self.values[node] = copy

    def value(self, node: Node) -> Node:
        """The copy of a node that is valid here."""
        if node in self.values:
            return self.values[node]
        if node in self.listed or node.op == "placeholder":
            self.values[node] = self.absent(node)
        else:
            self.values[node] = self.graph.node_copy(node, self.value)
            for source in node.all_input_nodes:
                self.readers.setdefault(source, []).append(node)
        return self.values[node]

    def take(self, node: Node) -> None:
        """Make a node an input."""
        copy = self.graph.placeholder(node.name)
        copy.meta = node.meta
        self.values[node] = copy

    def give(self, results: Sequence[Any]) -> Graph:
        """End the graph."""
        self.graph.output(tuple(self.value(each) if isinstance(each, Node) else each for each in results))
        # What forward computes only for backward, which then computes it itself, would live to the end of forward.
        self.graph.eliminate_dead_code()
        self.graph.lint()
        return self.graph

    def _forget(self, node: Node) -> None:
        for reader in self.readers.pop(node, []):
            self.values.pop(reader, None)
            self._forget(reader)


def _saved(joint: GraphModule, order: Order, gradients: Sequence[Any]) -> list[Node]:
    """What backward reads before it computes it: found by writing it once."""
    found: dict[Node, Node] = {}

    def absent(node: Node) -> Node:
        # Only reading matters in this writing, and a placeholder may not stand between ops.
        found[node] = writer.graph.create_node("get_attr", "saved", name=node.name)
        return found[node]

    writer = _Writer(listed=frozenset((*order.forward, *order.backward)), absent=absent)
    for node in _inputs(joint, backward=True):
        writer.take(node)
    for node in order.backward:
        writer.compute(node)
    writer.give(gradients)
    for node, copy in found.items():
        if node.op == "placeholder" and _is_only_statistics(copy):
            # Forward has overwritten it by then, which autograd would take for a defect.
            node.meta[_UNCHECKED] = True
    # Tensors whose version is not checked come last (torch/_functorch/_aot_autograd/schemas.py).
    return sorted((node for node, copy in found.items() if copy.users), key=_unchecked)


def _is_only_statistics(value: Node) -> bool:
    """Is a value read as running statistics alone? What training computes for backward does not depend on them."""
    for user in value.users:
        if not isinstance(user.target, OpOverload):
            return False
        # The one way to a schema from Python; fx itself uses it.
        names = [each.name for each in user.target._schema.arguments]  # noqa: SLF001
        given = {**dict(zip(names, user.args, strict=False)), **user.kwargs}
        read = {name for name, each in given.items() if each is value}
        if not read or not read <= _STATISTICS:
            return False
    return True


def _unchecked(node: Node) -> bool:
    return bool(node.meta.get(_UNCHECKED, False))


def _forward(joint: GraphModule, order: Order, results: Sequence[Any], saved: Sequence[Node]) -> Graph:
    def absent(node: Node) -> Node:
        raise UsageError(
            f"the schedule needs {node.name} in forward before it is there",
            hint="plan again: the schedule belongs to another graph",
        )

    writer = _Writer(listed=frozenset((*order.forward, *order.backward)), absent=absent)
    for node in _inputs(joint, backward=False):
        writer.take(node)
    for node in order.forward:
        writer.compute(node)
    return writer.give([*results, *saved])


def _backward(joint: GraphModule, order: Order, results: Sequence[Any], saved: Sequence[Node]) -> Graph:
    def absent(node: Node) -> Node:
        raise AssertionError(f"{node.name} was not read before")

    writer = _Writer(listed=frozenset((*order.forward, *order.backward)), absent=absent)
    for node in (*saved, *_inputs(joint, backward=True)):
        writer.take(node)
    for node in order.backward:
        writer.compute(node)
    graph = writer.give(results)
    for node in graph.nodes:
        if node.op in {"call_function", "get_attr"}:
            node.meta["autograd_backward"] = True
    return graph


def _inputs(joint: GraphModule, *, backward: bool) -> list[Node]:
    """Inputs of one half; names as AOTAutograd gives them."""
    own = ("tangents", "bwd_seed", "bwd_base_offset", "bwd_rng_state")
    return [node for node in joint.graph.find_nodes(op="placeholder") if is_backward_input(node, own) is backward]


def is_backward_input(node: Node, names: tuple[str, ...] = ("tangents",)) -> bool:
    """Is an input of the joint graph there only in backward? (torch/_functorch/partitioners.py ``_is_tangent``)."""
    return node.op == "placeholder" and any(name in str(node.target) for name in names)


def _saved_descriptions(saved: Sequence[Node]) -> list[Any]:
    if functorch.descriptors is None:
        # Before torch 2.8 results are not described.
        return [None] * len(saved)
    checked, unchecked = (
        getattr(functorch.descriptors, name, None)
        for name in ("SavedForBackwardsAOTOutput", "SavedForBackwardsNoVcCheckAOTOutput")
    )
    return [(unchecked if _unchecked(node) else checked)(index) for index, node in enumerate(saved)]  # type: ignore[misc]


def _describe(graph: Graph, descriptions: Sequence[Any]) -> None:
    output = graph.output_node()
    output.meta["desc"] = list(descriptions)
    output.meta["output_stack_traces"] = [
        node.meta.get("stack_trace") if isinstance(node, Node) else None for node in tree_leaves(output.args[0])
    ]
