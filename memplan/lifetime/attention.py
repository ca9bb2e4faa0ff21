"""What attention holds: from the projections that make queries, keys and values to the one that takes its output.

No class of a model says that it is attention, its ops do: a fused kernel, or a softmax between two batched products.

x ── q_proj ── view ── rotate ── attention ── view ── o_proj ── + x
     └─────────────────────── attention's ───────────────┘
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from memplan.lifetime.records import Category, Lifetimes
from memplan.tracing.records import Op, Trace
from memplan.units import OpIndex, StorageId

Ops = set[OpIndex]
"""Op indices."""
_BATCHED = ("bmm", "baddbmm")
_PRODUCTS = (*_BATCHED, "mm", "addmm", "linear", "_scaled_mm", "_int_mm", "convolution", "matmul")
_SOFTMAX = ("_softmax", "_safe_softmax")


def held_by_attention(lifetimes: Lifetimes, alive: Iterable[StorageId]) -> dict[Category, int]:
    """Bytes of each category that attention holds among some storages, what holds none left out.

    Activations and temporaries are told by the module and line of the op that makes them, which are those of forward in
    backward too; weights, their gradients and states by their names.
    """
    ops = [lifetimes.trace.ops[index] for index in sorted(attention_ops(lifetimes.trace))]
    places = {(op.module, op.source) for op in ops}
    names = _parameters_of(ops, lifetimes.trace)
    totals: defaultdict[Category, int] = defaultdict(int)
    for storage in alive if ops else ():
        buffer, name = lifetimes.buffers[storage], lifetimes.trace.storages[storage].name
        if name in names or (not name and (buffer.module, buffer.source) in places):
            totals[buffer.category] += buffer.nbytes
    return {category: totals[category] for category in Category if totals[category]}


def attention_ops(trace: Trace) -> Ops:
    """Ops of forward in the last step that are attention's, its projections included."""
    if not trace.steps:
        return set()
    last = trace.steps[-1]
    flow = _Flow([op for op in trace.ops[last.first_op : last.end_op] if op.phase == "forward"])
    found: Ops = set()
    for op in flow.ops:
        core = flow.core(op)
        if core:
            found |= core | flow.back(core) | flow.onward(core)
    return found


class _Flow:
    """Who makes what an op reads, and who reads what it makes."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops = ops
        """In order."""
        self._by_index = {op.index: op for op in ops}
        self._made_by: dict[OpIndex, Ops] = {}
        self._read_by: defaultdict[OpIndex, Ops] = defaultdict(set)
        last_writer: dict[StorageId, OpIndex] = {}
        for op in ops:
            makers = {last_writer[storage] for storage in op.reads if storage in last_writer}
            self._made_by[op.index] = makers
            for maker in makers:
                self._read_by[maker].add(op.index)
            last_writer |= dict.fromkeys(op.writes, op.index)

    def core(self, op: Op) -> Ops:
        """The ops in which queries meet keys and values, where one is a fused kernel or a softmax; else none."""
        if "attention" in op.name and _kind(op) not in _SOFTMAX:
            return {op.index}
        if _kind(op) not in _SOFTMAX:
            return set()
        scores, mixed = self.back({op.index}), self.onward({op.index})
        if not (self._has_batched(scores) and self._has_batched(mixed)):
            # A router's or a classifier's softmax comes of a product with weights.
            return set()
        return scores | {op.index} | mixed

    def back(self, ops: Ops) -> Ops:
        """What is run for their operands, back to the nearest products."""
        return self._reached(ops, self._made_by.__getitem__)

    def onward(self, ops: Ops) -> Ops:
        """What is made of their results, up to the nearest products."""
        return self._reached(ops, lambda index: self._read_by.get(index, set()))

    def _reached(self, ops: Ops, neighbours: Callable[[OpIndex], Ops]) -> Ops:
        found: Ops = set()
        waiting = {index for op in ops for index in neighbours(op)} - ops
        while waiting:
            index = waiting.pop()
            found.add(index)
            if _kind(self._by_index[index]) not in _PRODUCTS:
                waiting |= neighbours(index) - found - ops
        return found

    def _has_batched(self, ops: Ops) -> bool:
        return any(_kind(self._by_index[index]) in _BATCHED for index in ops)


def _kind(op: Op) -> str:
    """``bmm`` of ``aten.bmm.default``."""
    return op.name.removeprefix("aten.").partition(".")[0]


def _parameters_of(ops: Iterable[Op], trace: Trace) -> set[str]:
    """Names of the parameters that they read; of what is gathered from shards, those of the product's module."""
    read = {trace.storages[storage].name for op in ops for storage in op.reads if trace.storages[storage].name}
    modules = {op.module for op in ops if _kind(op) in _PRODUCTS and _kind(op) not in _BATCHED}
    named = {storage.name for storage in trace.storages if storage.name.rpartition(".")[0] in modules - {""}}
    return read | named
