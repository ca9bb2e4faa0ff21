"""A checkpoint plan: what every block of a model does with its activations. Torch-free, and written to files."""

from dataclasses import dataclass
from enum import StrEnum

from memplan.units import Bytes

VERSION = "1.0"
"""Of the plan file; a reader takes every file with its own major number."""


class Action(StrEnum):
    """What a block does between its forward and its backward."""

    KEEP = "keep"
    """It keeps what autograd saves: plain PyTorch."""
    CHECKPOINT = "checkpoint"
    """It keeps its inputs and runs its forward again."""
    SELECTIVE = "selective"
    """It keeps its inputs and the results of some ops, and runs the rest of its forward again."""
    OFFLOAD = "offload"
    """What autograd saves waits in pinned host memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedOp:
    """Calls of one op in a block's forward whose results are kept."""

    op: str
    """``aten.mm.default``."""
    calls: tuple[int, ...]
    """Which of its calls within one forward of the block, counted from 0 in eager order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan:
    """One block's part of a plan. A block that no plan names keeps everything."""

    module: str
    """Qualified name (``model.layers.3``)."""
    action: Action
    """What it does."""
    saved: tuple[SavedOp, ...] = ()
    """What a selective block keeps; empty for the other actions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Consecutive blocks of a chain that are checkpointed as one: only the first one's input is kept.

    Segments nest. A block inside one does what its own ``BlockPlan`` says when the segment runs again.
    """

    modules: tuple[str, ...]
    """Two or more blocks, in the order in which they run; each one's result is the next one's first argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFingerprint:
    """One block's part of a fingerprint: with it an error can say which block differs."""

    module: str
    """Qualified name."""
    parameters: int
    """Number of parameters."""
    structure: str
    """Hash over names, classes and parameter shapes of all modules inside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What must not have changed since the plan was made, apart from batch, sequence length and dtype."""

    model: str
    """Class of the model."""
    parameters: int
    """Number of parameters."""
    blocks: str
    """Hash over names, classes and parameter shapes of all modules inside the planned blocks."""
    each: tuple[BlockFingerprint, ...] = ()
    """The planned blocks one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What the plan is said to bring, for the step that it was made for."""

    step: str
    """The step in words: ``batch 8 x seq 2048 · bf16 · adamw``."""
    device: str
    """Profile that it was made for."""
    budget_bytes: Bytes
    """Peak that was asked for at most, as ``estimate`` reports it (device peak)."""
    peak_before_bytes: Bytes
    """Peak without the plan."""
    peak_after_bytes: Bytes
    """Peak with it, traced with the plan in force."""
    overhead_ratio: float
    """Extra time as a share of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPlan:
    """Everything that ``memplan.apply`` needs, and what it may promise."""

    blocks: tuple[BlockPlan, ...]
    """Every block that does not simply keep, in the order in which they run."""
    segments: tuple[Segment, ...] = ()
    """Outermost first."""
    prefetch: bool = False
    """Are an offloaded block's tensors fetched back while the offloaded block before it runs backward?"""
    fingerprint: Fingerprint | None = None
    """None in a plan written by hand: then only the names must exist."""
    promise: Promise | None = None
    """None in a plan written by hand."""


def is_for_gpu(plan: CheckpointPlan) -> bool:
    """Was it made for the kernels of another device than the CPU? Of one written by hand nobody knows."""
    return plan.promise is not None and plan.promise.device != "cpu"
