"""The largest batch that fits, and what is known around it."""

from dataclasses import dataclass
from typing import Literal

from memplan.measure.records import TailRisk, Verdict
from memplan.units import Bytes

Variable = Literal["batch_size", "seq_len"]
"""What is enlarged."""
Ended = Literal["exact", "confirmed", "refused", "limit", "none"]
"""``exact``: the answer and one more were traced, and every storage has the bytes that the polynomials of the traces
before foretold; ``confirmed``: both were traced, and some storage differs; ``refused``: the answer was traced, and one
more is refused by the program itself; ``limit``: the search ran out of traces, and
the answer is the largest traced that fits, 0 where none was found; ``none``: not even 1 fits. Sizes alone do not prove
that one more is too many: a padded one may stand still there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """A step at one value."""

    value: int
    """Of what was enlarged."""
    device_bytes: Bytes
    """Device peak."""
    fits: bool
    """Is that within the limit?"""
    traced: bool
    """By a trace of its own, or by the sizes that other traces foretell?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTurn:
    """The first value beyond the answer at which the verdict is another one."""

    value: int
    """Of what was enlarged."""
    verdict: Verdict
    """TIGHT or OOM."""
    device_bytes: Bytes
    """Device peak."""
    traced: bool
    """By a trace of its own, or by the sizes that other traces foretell?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTail:
    """How likely a run of drawn lengths runs out of memory at one batch size."""

    value: int
    """The batch size."""
    risk: TailRisk | None
    """How likely; None where nobody knows what the step takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAnswer:
    """The largest batch size (or sequence length) that fits a device."""

    variable: Variable
    """What was enlarged."""
    value: int
    """The answer; 0 where nothing fits."""
    device_bytes: Bytes
    """Device peak there, traced; of the smallest that was traced where nothing fits."""
    next_device_bytes: Bytes | None
    """Device peak at one more; traced, but where the search ran out of traces; None where the program refuses it."""
    limit_bytes: Bytes
    """What may be taken: the device's usable bytes, or the share of them that was asked for."""
    ended: Ended
    """How it ended."""
    traced: tuple[int, ...]
    """Values that were traced, in order."""
    differing: int
    """Storages that the trace at the answer has with other bytes than the polynomials said before it."""
    seconds: float
    """Wall time."""
    refused: str = ""
    """What the program says at one more, where it refuses that."""
    curve: tuple[BatchPoint, ...] = ()
    """Peaks at the answer, one more, and a few below, in order."""
    turns: tuple[BatchTurn, ...] = ()
    """Where larger values become TIGHT and where OOM, on the whole device; none where the program refuses one more."""
    tails: tuple[BatchTail, ...] = ()
    """Of drawn lengths: the answer, and smaller ones where it runs out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSplit:
    """A global batch in parts that fit."""

    global_batch: int
    """Samples per optimizer step, over all ranks."""
    micro_batch: int
    """Samples per rank and micro-batch."""
    grad_accum: int
    """Micro-batches per optimizer step."""
    ranks: int
    """Ranks that get batches of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalBatch:
    """The cost of a batch beside the best use of steps and of samples."""

    noise_scale: float
    """The gradient noise scale, in samples: the critical batch size."""
    batch: int
    """The global batch that is judged."""
    extra_steps: float
    """Optimizer steps beyond the least, as a share."""
    extra_samples: float
    """Samples beyond the least, as a share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPhase:
    """A part of training with one batch size."""

    start: float
    """Where it begins, as a share of training."""
    batch: int
    """Global batch."""
    learning_rate: float
    """Factor on the first phase's learning rate."""
