"""Which work of a step goes by its samples: all ways to spread the step over ranks have to do it, however they do.

Forward: what reads samples, or what came of them. Backward: products, and what leads to one. What is left are casts and
copies of weights and their gradients, which each micro-batch needs once, and kernels that only reduce to a gradient.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from memplan.lifetime.records import Category, Lifetimes
from memplan.timing.clock import CAUSAL_SHARE
from memplan.tracing.records import Op, Storage, Trace
from memplan.tracing.turns import stretches
from memplan.units import StorageId


class SampleKernel(NamedTuple):
    """What a kernel does for samples, in the order of ``Rates.seconds``."""

    op: Op
    flops: float
    moved: float
    """Bytes."""


class SampleWork(NamedTuple):
    """The work of one traced step, the optimizer's aside."""

    of_samples: tuple[tuple[SampleKernel, int], ...]
    """Goes by the samples: kernels, and how often each comes."""
    fixed: tuple[Op, ...]
    """Ops on weights, buffers and constants alone."""


def sample_work(lifetimes: Lifetimes) -> SampleWork:
    """Return the work of the last step, as far as it goes by its samples: no more than that."""
    trace = lifetimes.trace
    step = trace.steps[-1]
    ops = [op for op in trace.ops[step.first_op : step.end_op] if op.phase in ("forward", "backward")]
    states = {identity for identity, buffer in lifetimes.buffers.items() if buffer.category in _STATES}
    fixed, weights = _fixed(ops, states)
    needed = _leads_to_products(ops)
    counted = [op for op in ops if op.index not in fixed and (op.phase == "forward" or op.index in needed)]
    often = {op.index: times for row, times in stretches(trace, step.first_op, step.end_op) for op in row}
    kernels = [
        (_kernel(op, weights, trace), often[op.index])
        for op in counted
        if op.bytes_moved and _is_on_device(op, trace.storages)
    ]
    return SampleWork(tuple(kernels), tuple(op for op in ops if op.index in fixed))


_STATES = (Category.PARAMETER, Category.BUFFER)


def _fixed(ops: Iterable[Op], states: AbstractSet[StorageId]) -> tuple[AbstractSet[int], AbstractSet[StorageId]]:
    """Return the ops that read no samples, and every storage that held no samples at some time."""
    now, ever = set(states), set(states)
    found: set[int] = set()
    for op in ops:
        if now.issuperset(op.reads):
            found.add(op.index)
            now.update(op.writes)
            ever.update(op.writes)
        else:
            now.difference_update(set(op.writes) - states)
    return found, ever


def _leads_to_products(ops: Sequence[Op]) -> AbstractSet[int]:
    """Return the ops of backward that multiply, or whose results are read by one that does, through whatever else."""
    found: set[int] = set()
    read: set[StorageId] = set()
    for op in reversed(ops):
        if op.phase == "backward" and (op.flops or not read.isdisjoint(op.writes)):
            found.add(op.index)
            read.update(op.reads)
    return found


def _kernel(op: Op, weights: AbstractSet[StorageId], trace: Trace) -> SampleKernel:
    """Of a product in backward its arithmetic alone counts: its result may be a gradient of weights."""
    flops = op.flops * (CAUSAL_SHARE if op.index in trace.causal else 1.0)
    if op.phase == "backward" and flops:
        return SampleKernel(op, flops, 0.0)
    of_weights = sum(trace.storages[each].nbytes for each in {*op.reads, *op.writes} & weights)
    return SampleKernel(op, flops, max(0, op.bytes_moved - of_weights))


def _is_on_device(op: Op, storages: Sequence[Storage]) -> bool:
    """Collectives and copies from the host have clocks of their own."""
    return op.name.startswith("aten.") and all(storages[each].place == "device" for each in (*op.reads, *op.writes))
