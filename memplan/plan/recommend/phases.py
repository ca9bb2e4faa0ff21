"""Bytes by category at the peak of each phase of a step, from which other configurations are predicted."""

from collections.abc import Mapping

from memplan.lifetime.owners import by_category
from memplan.lifetime.records import Category, Lifetimes
from memplan.lifetime.sweep import alive_after, live_curve
from memplan.tracing.records import Phase

Peaks = Mapping[Phase, Mapping[Category, float]]
"""Phase of a step → bytes by category at the phase's own peak."""


def phase_peaks(lifetimes: Lifetimes) -> Peaks:
    """Requested bytes at the peak of every phase, over all traced steps.

    Args:
        lifetimes: Of the trace; what happens before its first op is left out.
    """
    trace, buffers = lifetimes.trace, lifetimes.buffers
    most: dict[Phase, tuple[int, int]] = {}
    for index, (event, live) in enumerate(zip(trace.events, live_curve(trace, buffers), strict=True)):
        if event.op >= 0:
            phase = trace.ops[event.op].phase
            if live > most.get(phase, (0, 0))[0]:
                most[phase] = live, index
    return {phase: by_category(lifetimes, alive_after(trace, buffers, at)) for phase, (_, at) in most.items()}


def has_experts(lifetimes: Lifetimes) -> bool:
    """Has the model a mixture of experts? transformers, DeepSeek, Mixtral and torchtitan call the module so."""
    return any(
        buffer.category is Category.PARAMETER and "experts" in buffer.module.split(".")
        for buffer in lifetimes.buffers.values()
    )
