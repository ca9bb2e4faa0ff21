"""Nodes of a joint graph: which allocate memory and which view it; which may run twice and which must not."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node


_PROBABILITIES = ("dropout_p", "p")
"""Arguments of ops that are random only if they are above zero: ``_scaled_dot_product_flash_attention``."""

_UNREAD_STATISTICS = ("aten::_native_batch_norm_legit", "aten::native_batch_norm", "aten::_batch_norm_with_update")
"""Ops that take running statistics, and in training compute their other results without them."""

_COLLECTIVES = frozenset({"_c10d_functional", "c10d_functional", "_dtensor", "fsdp"})
"""Namespaces of ops that other ranks take part in."""


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
