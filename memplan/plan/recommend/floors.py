"""What one traced way says of others: bytes and work that they cannot do without."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import dropwhile, takewhile

from memplan.lifetime.records import Category, Lifetimes
from memplan.lifetime.sweep import live_curve
from memplan.plan.recommend.samples import sample_work
from memplan.timing.rates import Rates
from memplan.tracing.records import Phase, Trace
from memplan.tracing.turns import stretches

UNSTEADY = ("scratch", "workspace")
"""Roles of what kernels take for themselves: a smaller batch may need more of it."""
PRODUCTS = ("aten.mm.", "aten.addmm.", "aten.convolution")
"""Ops whose arithmetic stays the same however attention, the loss or the optimizer computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFloor:
    """What a way holds and computes, as far as another way holds and computes no less."""

    live: Mapping[Phase, int] = field(default_factory=dict)
    """Most requested bytes of each phase, without what kernels take for themselves."""
    live_without_gradients: Mapping[Phase, int] = field(default_factory=dict)
    """The same without gradients of parameters, which wait between micro-batches and nowhere else."""
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
    """Read a floor from a trace.

    Args:
        lifetimes: Of the trace of one rank.
        rates: Of the device, for what the job computes in.
    """
    trace = lifetimes.trace
    products, forward = _products(trace)
    work = sample_work(lifetimes)
    return MemoryFloor(
        live=_most_live(lifetimes, ()),
        live_without_gradients=_most_live(lifetimes, (Category.GRADIENT,)),
        products=products,
        forward_products=forward,
        has_fixed_products=any(op.name.startswith(PRODUCTS) for op in work.fixed),
        forward_kernels=_forward_kernels(trace),
        sample_seconds=sum(times * rates.seconds(*each) for each, times in work.of_samples),
        parameters=trace.model.parameters,
        trainable_parameters=trace.model.trainable_parameters,
    )


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
