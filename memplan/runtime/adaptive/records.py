"""What the batch finder and the step wrapper answer. Torch is named, not computed with."""

from dataclasses import dataclass
from enum import StrEnum

import torch


class Ended(StrEnum):
    """How a search for the largest batch ended."""

    OPTIMAL = "optimal"
    """The size ran, and the next larger one that is allowed ran out of memory."""
    LIMIT = "limit reached"
    """The largest size that is allowed ran."""
    TIMED_OUT = "timed out"
    """Time or tries were used up: the largest size that ran, and larger ones may run too."""
    INFEASIBLE = "infeasible"
    """The smallest size that is allowed ran out of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One size, tried."""

    size: int
    """Batch size."""
    fits: bool
    """Did it run, on every rank?"""
    seconds: float
    """Wall time, without the cleaning up after it."""
    error: str
    """First line of what it said when it ran out of memory; empty where it fits, or where only another rank did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBatch:
    """The largest batch that ran."""

    size: int
    """Batch size; 0 where none ran."""
    ended: Ended
    """How it is known."""
    fails_at: int
    """The smallest size that ran out of memory; 0 where none did."""
    tries: tuple[Try, ...]
    """All of them, in order."""
    seconds: float
    """Wall time of the whole search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatches:
    """What one call of ``AutoMicroBatch`` did. Its gradients stand in ``.grad``."""

    loss: torch.Tensor
    """Of the whole batch, detached; of this rank."""
    samples: tuple[int, ...]
    """Size of every micro-batch, in order."""
    retries: int
    """How often some rank ran out of memory before."""
