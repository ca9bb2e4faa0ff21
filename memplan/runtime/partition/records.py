"""An op-level plan as a file holds it. Torch-free."""

from dataclasses import dataclass

from memplan.units import Bytes

VERSION = "1.0"
"""Of the plan file; a reader takes every file with its own major number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JointOp:
    """One op of a joint graph."""

    name: str
    """Of the node that the plan was made with."""
    op: str
    """``aten.mm.default``."""
    result: str
    """Device, dtype and shape of what it returns: ``cpu float32[4, 32]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderPromise:
    """What the plan says of a step that follows it."""

    budget_bytes: Bytes
    """Asked for at most."""
    peak_before_bytes: Bytes
    """Of forward and backward in the graph's own order."""
    peak_after_bytes: Bytes
    """Of forward and backward in the planned order: parameters, buffers, batch, activations and gradients."""
    overhead_ratio: float
    """Extra time as a share of the unplanned time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderPlan:
    """Which ops of one joint graph run when."""

    structure: str
    """Fingerprint of the joint graph."""
    ops: tuple[JointOp, ...]
    """The joint graph's ops in its order."""
    forward: tuple[str, ...]
    """Names of the ops that run in forward, in order."""
    backward: tuple[str, ...]
    """Names of the ops that run in backward, in order; those that forward ran too are computed again."""
    promise: OrderPromise
    """Peaks and time."""
