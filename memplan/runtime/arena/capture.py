"""An inference graph as the ops that the dispatcher sees, and whose bytes each of their results is.

A model is exported, and the exported program traced once more below autograd, so that every composite op is replaced by
those that eager PyTorch really runs. One run of the graph then tells which results share the bytes of which arguments;
schemas alone do not always say so (``_unsafe_view``).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from memplan.errors import UsageError
from memplan.runtime.arena.out_variants import written
from memplan.runtime.arena.records import GraphBuffer
from memplan.runtime.arena.traced import kept, own, traced
from memplan.seam.operators import OpOverload
from memplan.seam.pytree import TreeSpec, tree_leaves, tree_map_only


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One tensor that a node makes: where it lies in which storage."""

    root: int
    """The storage."""
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    """In elements."""
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A graph with static shapes."""

    module: GraphModule
    """Ops in order; parameters are its attributes."""
    results: Mapping[str, Any]
    """Node → its result, with a ``Shape`` in place of each tensor."""
    sizes: Mapping[int, int]
    """Storage → bytes."""
    buffers: tuple[GraphBuffer, ...]
    """Intermediates with their lifespans: what ops allocate, results of the whole aside."""
    structure: TreeSpec
    """Of what the model returns, whose leaves the graph returns."""
    device: torch.device
    """Of the model, or of its inputs where it has no parameters."""


def capture(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Captured:
    """Capture a model's forward without gradients; the inputs and the model's buffers are left as they are.

    The model is in the mode it is to run in (``eval()``), and its forward must export (``torch.export``). The shapes of
    the arguments are the graph's.

    Raises:
        UsageError: The model is in training mode; ``torch.export`` refuses it; or an arena cannot run it: it writes
            into its inputs, shapes depend on values, or results are sparse or lazily conjugated.
    """
    if model.training:
        raise UsageError("an inference graph is captured in evaluation mode", hint="call model.eval() first")
    # What is made in inference mode cannot be written outside of it.
    with torch.inference_mode(mode=False), torch.no_grad(), kept(model):
        args, kwargs = tree_map_only(torch.Tensor, own, (args, dict(kwargs or {})))
        module, leaves, structure = traced(model, args, kwargs or {})
        watch = _Watch(module)
        watch.run(*leaves)
    tensors = chain(model.parameters(), model.buffers(), leaves)
    device = next((tensor.device for tensor in tensors), torch.device("cpu"))
    return watch.captured(structure, device)


class _Watch(Interpreter):
    """Runs a graph once and notes whose bytes each result is."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.results: dict[str, Any] = {}
        self.sizes: dict[int, int] = {}
        self.fresh: set[int] = set()
        self.inputs: set[int] = set()
        self.births: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self._index = {node: index for index, node in enumerate(module.graph.nodes)}
        self._read: dict[int, int] = {}
        self._outputs: frozenset[int] = frozenset()

    def run_node(self, n: Node) -> Any:
        """Run one node, and note the storages of what it makes."""
        self._refuse(n)
        made = super().run_node(n)
        now = self._index[n]
        around = dict(self._read)
        self._read.clear()
        for source in n.all_input_nodes:
            for root in self._roots(source):
                self.ends[root] = now + 1
        if n.op == "output":
            self._outputs = frozenset(root for source in n.all_input_nodes for root in self._roots(source))
        else:
            self.results[n.name] = tree_map_only(torch.Tensor, lambda tensor: self._shape(n, tensor, around, now), made)
        return made

    def _refuse(self, node: Node) -> None:
        """Writes that the caller would not see."""
        into = written(node) if isinstance(node.target, OpOverload) else ()
        if any(root in self.inputs for source in into for root in self._roots(source)):
            raise UsageError(
                "this model writes into its inputs, and an arena has copies of them",
                where=str(node.target),
                hint="clone them in its forward",
            )

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node, whose storages are noted: their values go as soon as the node has run."""
        for source in n.all_input_nodes:
            for tensor, root in zip(_tensors(self.env[source]), self._roots(source), strict=True):
                self._read[tensor.untyped_storage().data_ptr()] = root
        return super().fetch_args_kwargs_from_env(n)

    def _roots(self, node: Node) -> Iterator[int]:
        return (leaf.root for leaf in tree_leaves(self.results[node.name]) if isinstance(leaf, Shape))

    def _shape(self, node: Node, tensor: torch.Tensor, around: dict[int, int], now: int) -> Shape:
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            raise UsageError(
                f"an arena has no sparse and no lazily conjugated tensors like {node.name}'s", where=str(node.target)
            )
        place = tensor.untyped_storage().data_ptr()
        if place not in around or not tensor.untyped_storage().nbytes():
            root = len(self.sizes)
            around[place] = root
            self.sizes[root] = tensor.untyped_storage().nbytes()
            self.births[root] = now
            self.ends[root] = now + 1
            if node.op == "call_function":
                self.fresh.add(root)
            elif node.op == "placeholder":
                self.inputs.add(root)
        return Shape(
            root=around[place],
            size=tuple(tensor.shape),
            stride=tuple(tensor.stride()),
            offset=int(tensor.storage_offset()),
            dtype=tensor.dtype,
        )

    def captured(self, structure: TreeSpec, device: torch.device) -> Captured:
        """What was found."""
        return Captured(
            module=self.module,  # type: ignore[arg-type] # the interpreter was given a graph module.
            results=self.results,
            sizes=self.sizes,
            buffers=tuple(
                GraphBuffer(root=root, nbytes=self.sizes[root], start=self.births[root], end=self.ends[root])
                for root in sorted(self.fresh - self._outputs)
            ),
            structure=structure,
            device=device,
        )


def _tensors(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
