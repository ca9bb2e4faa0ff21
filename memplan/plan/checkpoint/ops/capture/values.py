"""Tell the nodes of a joint graph that allocate memory from those that only view it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memplan.plan.checkpoint.ops.capture.kinds import has_effect

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


@dataclass(slots=True, kw_only=True)
class Computation:
    """One op that makes memory, or has an effect."""

    node: "Node"
    """The op."""
    accessors: "dict[int, Node]" = field(default_factory=dict)
    """Storage to the first node whose value lies in it: the op itself, or a ``getitem`` of it."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Bytes of each storage that it makes, of those too that nobody reads."""

    @property
    def unread_bytes(self) -> int:
        """Bytes that it makes and nobody takes."""
        return sum(self.sizes[storage] for storage in self.sizes.keys() - self.accessors.keys())


@dataclass(slots=True, kw_only=True)
class GraphValues:
    """A joint graph by storages."""

    computations: "list[Computation]" = field(default_factory=list)
    """In the graph's order."""
    inputs: dict[int, int] = field(default_factory=dict)
    """Bytes of each storage that comes from outside."""
    maker: "dict[int, Computation]" = field(default_factory=dict)
    """Storage to what makes it."""
    computation_of: "dict[Node, Computation]" = field(default_factory=dict)
    """Op to its computation."""

    def storages_read(self, node: "Node") -> set[int]:
        """Storages made in the graph that must be there for a node to run.

        A view needs what it looks at; what is no tensor (a size) needs what it is computed from.
        """
        found: set[int] = set()
        for source in node.all_input_nodes:
            found |= self.storages_of(source)
        return found

    def storages_of(self, node: "Node") -> set[int]:
        """Storages made in the graph in which a node's value lies."""
        own = set(storages(node))
        if own:
            return own & self.maker.keys()
        return set() if node in self.computation_of or node.op != "call_function" else self.storages_read(node)


def storages(node: "Node") -> dict[int, int]:
    """The storages of a node's value and their bytes."""
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef

    from memplan.seam.pytree import tree_leaves

    leaves: list[Any] = [leaf for leaf in tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]
    found = [leaf.untyped_storage() for leaf in leaves]
    return {StorageWeakRef(each).cdata: each.nbytes() for each in found}  # type: ignore[no-untyped-call]


def values_of(joint: "GraphModule") -> GraphValues:
    """Read a joint graph, whose nodes carry fake values with storages shared as the real ones will be."""
    values = GraphValues()
    for node in joint.graph.nodes:
        if node.op in {"placeholder", "get_attr"}:
            values.inputs.update(_attribute(joint, node) if node.op == "get_attr" else storages(node))
        elif node.op == "call_function":
            _read(values, node)
    return values


def _read(values: GraphValues, node: "Node") -> None:
    own = storages(node)
    made = {storage: size for storage, size in own.items() if storage not in values.inputs | values.maker}
    if made or has_effect(node):
        computation = Computation(node=node, sizes=made)
        values.computations.append(computation)
        values.computation_of[node] = computation
        values.maker.update(dict.fromkeys(made, computation))
    for storage in own:
        if storage in values.maker and not isinstance(node.meta["val"], list | tuple):
            values.maker[storage].accessors.setdefault(storage, node)


def _attribute(joint: "GraphModule", node: "Node") -> dict[int, int]:
    """A constant of the graph."""
    import torch

    found = joint
    for part in str(node.target).split("."):
        found = getattr(found, part)
    if not isinstance(found, torch.Tensor):
        return {}
    node.meta.setdefault("val", found)
    return storages(node)
