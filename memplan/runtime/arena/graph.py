"""Runs a captured inference graph with every intermediate at its planned offset in one buffer.

All tensors are made once: an op is then one call on tensors that lie where the plan says, views cost nothing, and
inputs are copied into memory of their own, as CUDA graphs want it. Ops without a kernel that writes into given memory
(``copied``) allocate their result, which is copied to its place at once.
"""

import operator
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from memplan.errors import MemplanError, UsageError
from memplan.runtime.arena.capture import Captured, Shape
from memplan.runtime.arena.out_variants import writer, written
from memplan.seam.operators import OpOverload
from memplan.seam.pytree import tree_leaves, tree_map_only, tree_unflatten

ALIGNMENT = 512
"""Of places in the arena: what kernels on any device are used to (``kMinBlockSize`` of the caching allocator)."""


class OverlapError(MemplanError):
    """Somebody wrote where a result that is still needed lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One op on its tensors."""

    name: str
    """Of the node."""
    run: Callable[[], object]
    """Runs it."""
    reads: tuple[int, ...]
    """Storages of its arguments."""
    writes: tuple[int, ...]
    """Storages that it writes."""


class GraphArena:
    """A captured graph in an arena.

    Args:
        captured: The graph.
        offsets: Storage → where it lies in the arena, a multiple of ``ALIGNMENT``; every intermediate of ``captured``.
        height: Bytes of the arena.
        guard: Check before each op that nobody has written over what it reads; slow.
    """

    def __init__(self, captured: Captured, offsets: Mapping[int, int], height: int, *, guard: bool = False) -> None:
        self.copied: Counter[str] = Counter()
        """Ops that allocate their results, by how often they occur."""
        self.height = height
        """Bytes of the arena."""
        self._guard = guard
        self._sizes = captured.sizes
        self._device = captured.device
        self._structure = captured.structure
        arena = self._room(height)
        self._bytes = {buffer.root: arena[offsets[buffer.root] :][: buffer.nbytes] for buffer in captured.buffers}
        """Storage → its bytes: in the arena, or wherever inputs, parameters and results lie."""
        self._known: set[int] = set()
        self._inputs: list[torch.Tensor] = []
        self._made: dict[Node, Any] = {}
        self._calls: list[_Call] = []
        self._sums: dict[int, int] = {}
        self._result: Any = ()
        # What is made in inference mode cannot be written outside of it.
        with torch.inference_mode(mode=False), torch.no_grad():
            for node in captured.module.graph.nodes:
                self._prepare(captured, node)

    def __call__(self, *inputs: torch.Tensor) -> Any:
        """Run the graph.

        Args:
            inputs: Tensors in the order in which the captured inputs' leaves stand, of the same shapes.

        Returns:
            What the model returns, in tensors of its own.

        Raises:
            UsageError: Not the inputs that were captured.
            OverlapError: With ``guard``: a result was overwritten before its last use.
        """
        # Casts that were on at the capture are ops of the graph.
        with torch.no_grad(), torch.autocast(self._device.type, enabled=False):
            self._put(inputs)
            self._sums.clear()
            for call in self._calls:
                if self._guard:
                    self._check(call)
                call.run()
                if self._guard:
                    self._sums.update((root, self._sum(root)) for root in call.writes)
            found = [torch.clone(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in self._result]
            return tree_unflatten(found, self._structure)

    def _put(self, inputs: Sequence[torch.Tensor]) -> None:
        wanted = [(tuple(place.shape), place.dtype) for place in self._inputs]
        given = [(tuple(tensor.shape), tensor.dtype) for tensor in inputs]
        if wanted != given:
            raise UsageError(f"this arena is for inputs {wanted}, not {given}", hint="plan one per shape")
        for place, tensor in zip(self._inputs, inputs, strict=True):
            place.copy_(tensor)

    def _prepare(self, captured: Captured, node: Node) -> None:
        """Make a node's tensors where they lie, and its call."""
        if node.op == "output":
            self._result = map_arg(node.args[0], self._made.__getitem__)
            return
        shapes = captured.results[node.name]
        roots = {leaf.root for leaf in tree_leaves(shapes) if isinstance(leaf, Shape)}
        if node.op == "get_attr":
            constant = operator.attrgetter(str(node.target))(captured.module)
            self._bytes.update((root, _bytes_of(constant)) for root in roots)
        new = roots - self._known
        self._known |= roots
        self._made[node] = tree_map_only(Shape, self._tensor, shapes)
        if node.op == "placeholder":
            self._inputs.append(self._made[node])
        elif node.op == "call_function" and node.target is not operator.getitem:
            self._add(captured, node, new)

    def _add(self, captured: Captured, node: Node, new: set[int]) -> None:
        op = node.target
        if not isinstance(op, OpOverload):
            raise MemplanError(f"an arena runs PyTorch's ops, not {op}", where=node.name)
        args = map_arg(node.args, self._made.__getitem__)
        kwargs = map_arg(node.kwargs, self._made.__getitem__)
        into = [leaf for leaf in tree_leaves(self._made[node]) if isinstance(leaf, torch.Tensor)]
        reads = _roots(captured, node.all_input_nodes)
        writes, run = new, partial(op, *args, **kwargs)
        if into_arguments := written(node):
            writes = new | _roots(captured, into_arguments)
        elif not new:
            return  # A view, which is made already.
        elif (write := writer(op)) is not None:
            run = partial(write, into, args, kwargs)
        else:
            self.copied[str(op)] += 1
            run = partial(_run_and_copy, op, into, args, kwargs)
        self._calls.append(_Call(name=node.name, run=run, reads=tuple(reads), writes=tuple(writes)))

    def _tensor(self, shape: Shape) -> torch.Tensor:
        if shape.root not in self._bytes:
            self._bytes[shape.root] = self._room(self._sizes[shape.root])
        place, width = self._bytes[shape.root], shape.dtype.itemsize
        start = place.storage_offset() // width + shape.offset
        empty = torch.empty(0, dtype=shape.dtype, device=self._device)
        return empty.set_(place.untyped_storage(), start, shape.size, shape.stride)

    def _room(self, nbytes: int) -> torch.Tensor:
        """Aligned bytes."""
        room = torch.empty(nbytes + ALIGNMENT, dtype=torch.uint8, device=self._device)
        return room[-room.data_ptr() % ALIGNMENT :][:nbytes]

    def _check(self, call: _Call) -> None:
        for root in call.reads:
            if root in self._sums and self._sum(root) != self._sums[root]:
                raise OverlapError(f"what {call.name} reads was overwritten", where=f"storage {root}")

    def _sum(self, root: int) -> int:
        return zlib.crc32(self._bytes[root].cpu().numpy().data)


def _roots(captured: Captured, nodes: Iterable[Node]) -> set[int]:
    leaves = tree_leaves([captured.results[node.name] for node in nodes])
    return {leaf.root for leaf in leaves if isinstance(leaf, Shape)}


def _run_and_copy(op: OpOverload, into: Sequence[torch.Tensor], args: Any, kwargs: Any) -> None:
    made = [leaf for leaf in tree_leaves(op(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
    for place, tensor in zip(into, made, strict=True):
        place.copy_(tensor)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.detach().untyped_storage())
