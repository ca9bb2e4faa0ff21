"""An inference graph as the ops that the dispatcher sees, and whose bytes each of their results is.

A model is exported, and the exported program traced once more below autograd, so that every composite op is replaced by
those that eager PyTorch really runs. One run of the graph then tells which results share the bytes of which arguments;
schemas alone do not always say so (``_unsafe_view``).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from memplan.errors import UsageError
from memplan.runtime.arena.records import GraphBuffer


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


def capture(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Captured:
    """Capture a model's forward without gradients.

    Args:
        model: In the mode it is to run in (``eval()``); its forward must export (``torch.export``).
        args: Positional inputs; their shapes are the graph's.
        kwargs: Named ones.

    Raises:
        UsageError: The model is in training mode, or ``torch.export`` refuses it.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    if model.training:
        raise UsageError("an inference graph is captured in evaluation mode", hint="call model.eval() first")
    with torch.no_grad():
        try:
            program = torch.export.export(model, args, dict(kwargs or {}), strict=False).module()
        except Exception as error:
            raise UsageError(f"torch.export refuses this model: {error}") from error
        leaves = [leaf for leaf in tree_leaves((args, dict(kwargs or {}))) if isinstance(leaf, torch.Tensor)]

        def flat(*tensors: torch.Tensor) -> Any:
            remaining = iter(tensors)

            def put(leaf: object) -> object:
                return next(remaining) if isinstance(leaf, torch.Tensor) else leaf

            placed_args, placed_kwargs = tree_map(put, (args, dict(kwargs or {})))
            return program(*placed_args, **placed_kwargs)

        module = make_fx(flat)(*leaves)
        module.graph.eliminate_dead_code()
        module.recompile()
        watch = _Watch(module)
        watch.run(*leaves)
    return watch.captured()


class _Watch(Interpreter):
    """Runs a graph once and notes whose bytes each result is."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.results: dict[str, Any] = {}
        self.sizes: dict[int, int] = {}
        self.fresh: set[int] = set()
        self.births: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self._index = {node: index for index, node in enumerate(module.graph.nodes)}
        self._read: dict[int, int] = {}
        self._outputs: frozenset[int] = frozenset()

    def run_node(self, n: Node) -> Any:
        """Run one node, and note the storages of what it makes."""
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

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node, whose storages are noted: their values go as soon as the node has run."""
        for source in n.all_input_nodes:
            for tensor, root in zip(_tensors(self.env[source]), self._roots(source), strict=True):
                self._read[tensor.untyped_storage().data_ptr()] = root
        return super().fetch_args_kwargs_from_env(n)

    def _roots(self, node: Node) -> Iterator[int]:
        return (leaf.root for leaf in tree_leaves(self.results[node.name]) if isinstance(leaf, Shape))

    def _shape(self, node: Node, tensor: torch.Tensor, around: dict[int, int], now: int) -> Shape:
        place = tensor.untyped_storage().data_ptr()
        if place not in around or not tensor.untyped_storage().nbytes():
            root = len(self.sizes)
            around[place] = root
            self.sizes[root] = tensor.untyped_storage().nbytes()
            self.births[root] = now
            self.ends[root] = now + 1
            if node.op == "call_function":
                self.fresh.add(root)
        return Shape(
            root=around[place],
            size=tuple(tensor.shape),
            stride=tuple(tensor.stride()),
            offset=int(tensor.storage_offset()),
            dtype=tensor.dtype,
        )

    def captured(self) -> Captured:
        """What was found."""
        return Captured(
            module=self.module,  # type: ignore[arg-type] # the interpreter was given a graph module.
            results=self.results,
            sizes=self.sizes,
            buffers=tuple(
                GraphBuffer(root=root, nbytes=self.sizes[root], start=self.births[root], end=self.ends[root])
                for root in sorted(self.fresh - self._outputs)
            ),
        )


def _tensors(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
