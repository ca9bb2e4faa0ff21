"""Operational intensity: how much arithmetic ops do for each byte, and which of a device's two rates holds them back.

FLOP/s ▲        ________ compute-bound: the cores are the limit
       │       /
       │      / memory-bound: the memory is
       └─────┴──────────► FLOPs for each byte
          the ridge: FLOP/s over bytes per second
"""

from dataclasses import dataclass
from typing import Literal

from memplan.lifetime.roofline import Roofline
from memplan.tracing.records import Op, Phase, Trace
from memplan.tracing.turns import performed
from memplan.units import Bytes

Side = Literal["compute", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpIntensity:
    """All calls of one op in one phase of the last traced step."""

    name: str
    """The op."""
    phase: Phase
    """Of the step."""
    calls: int
    """How often."""
    flops: int
    """Arithmetic of all calls."""
    bytes_moved: Bytes
    """What they read and write together."""
    intensity: float
    """FLOPs for each byte."""
    bound: Side
    """Which of the roofline's sides it lies on."""
    seconds: float
    """Its calls at least, by the roofline."""


def intensities(trace: Trace, roofline: Roofline) -> tuple[OpIntensity, ...]:
    """Return the ops of the last step, those that take longest first; views move nothing and are left out."""
    ops = performed(trace, trace.steps[-1].first_op, trace.steps[-1].end_op) if trace.steps else trace.ops
    alike: dict[tuple[str, Phase], list[Op]] = {}
    for op in ops:
        if op.flops or op.bytes_moved:
            alike.setdefault((op.name, op.phase), []).append(op)
    found = (_of(name, phase, calls, roofline) for (name, phase), calls in alike.items())
    return tuple(sorted(found, key=lambda each: (-each.seconds, each.name, each.phase)))


def _of(name: str, phase: Phase, calls: list[Op], roofline: Roofline) -> OpIntensity:
    flops, moved = sum(op.flops for op in calls), sum(op.bytes_moved for op in calls)
    return OpIntensity(
        name=name,
        phase=phase,
        calls=len(calls),
        flops=flops,
        bytes_moved=Bytes(moved),
        intensity=flops / moved if moved else 0.0,
        bound="compute" if flops > roofline.ridge * moved else "memory",
        seconds=roofline.total(calls),
    )
