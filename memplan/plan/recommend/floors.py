"""What one traced way says of others: bytes and work that they cannot do without.

Forward: what reads samples, or what came of them. Backward: products, and what leads to one. What is left are casts and
copies of weights and their gradients, which each micro-batch needs once, and kernels that only reduce to a gradient.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import dropwhile, takewhile
from typing import NamedTuple

from memplan.lifetime.records import Category, Lifetimes
from memplan.lifetime.sweep import live_curve
from memplan.timing.clock import CAUSAL_SHARE
from memplan.timing.rates import Rates
from memplan.tracing.records import Op, Phase, Storage, Trace
from memplan.tracing.turns import stretches
from memplan.units import StorageId

UNSTEADY = ("scratch", "workspace")
"""Roles of what kernels take for themselves: a smaller batch may need more of it."""
PRODUCTS = ("aten.mm.", "aten.addmm.", "aten.convolution")
"""Ops whose arithmetic stays the same however attention, the loss or the optimizer computes."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFloor:
    """What a way holds and computes, as far as another way holds and computes no less."""

    live: Mapping[Phase, int] = field(default_factory=dict)
    """Most requested bytes of each phase, without what kernels take for themselves."""
    live_without_gradients: Mapping[Phase, int] = field(default_factory=dict)
    """The same without gradients of parameters, which wait between micro-batches and nowhere else."""
    activations: int = 0
    """Most bytes of activations alone, in forward."""
    products: float = 0.0
    """FLOPs of matrix products and convolutions in one step of one rank, the optimizer aside."""
    forward_products: float = 0.0
    """Those of them that are the forward's."""
    has_fixed_products: bool = False
    """Are there products of weights alone, which each micro-batch computes once, however many samples it has?"""
    forward_kernels: int = 0
    """Products, convolutions and attentions in the forward of one micro-batch: another number is another program."""
    sample_seconds: float = 0.0
    """Time of the kernels of one step of one rank, as far as it goes by the samples and not by the weights."""
    parameters: int = 0
    """Elements of the whole model's parameters."""
    trainable_parameters: int = 0
    """Those that learn."""


def floor_of(lifetimes: Lifetimes, rates: Rates) -> MemoryFloor:
    """Read a floor from a trace."""
    trace = lifetimes.trace
    products, forward = _products(trace)
    work = sample_work(lifetimes)
    return MemoryFloor(
        live=_most_live(lifetimes, ()),
        live_without_gradients=_most_live(lifetimes, (Category.GRADIENT,)),
        activations=_most_live(lifetimes, _NO_ACTIVATIONS).get("forward", 0),
        products=products,
        forward_products=forward,
        has_fixed_products=any(op.name.startswith(PRODUCTS) for op in work.fixed),
        forward_kernels=_forward_kernels(trace),
        sample_seconds=sum(times * rates.seconds(*each) for each, times in work.of_samples),
        parameters=trace.model.parameters,
        trainable_parameters=trace.model.trainable_parameters,
    )


_NO_ACTIVATIONS = tuple(each for each in Category if each != Category.ACTIVATION)


def _most_live(lifetimes: Lifetimes, without: tuple[Category, ...]) -> Mapping[Phase, int]:
    trace = lifetimes.trace
    steady = {
        identity: buffer
        for identity, buffer in lifetimes.buffers.items()
        if buffer.category not in without and trace.storages[identity].role not in UNSTEADY
    }
    most: dict[Phase, int] = {}
    for event, live in zip(trace.events, live_curve(trace, steady), strict=True):
        if event.op >= 0:
            phase = trace.ops[event.op].phase
            most[phase] = max(most.get(phase, 0), live)
    return most


def _forward_kernels(trace: Trace) -> int:
    """Return how many ops multiply in the forward of the last micro-batch."""
    step = trace.steps[-1]
    forward_last = dropwhile(lambda op: op.phase != "forward", reversed(trace.ops[step.first_op : step.end_op]))
    return sum(op.flops > 0 for op in takewhile(lambda op: op.phase == "forward", forward_last))


def _products(trace: Trace) -> tuple[float, float]:
    """FLOPs of the products in the last step, and those of its forward."""
    step = trace.steps[-1]
    flops: Counter[Phase] = Counter()
    for ops, times in stretches(trace, step.first_op, step.end_op):
        for op in ops:
            flops[op.phase] += times * op.flops * op.name.startswith(PRODUCTS)
    return flops["forward"] + flops["backward"], flops["forward"]


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
