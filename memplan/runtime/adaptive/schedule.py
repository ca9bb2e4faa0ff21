"""Batches that grow while training goes on: by factors (AdaBatch), or by equal parts. Pure.

AdaBatch is of Devarakonda, Naumov and Garland 2017 (arXiv:1712.02029); the learning rate that goes with a batch that
grows by equal parts follows it (Goyal et al. 2017, arXiv:1706.02677).
"""

import math
from dataclasses import dataclass

from memplan.errors import several


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaBatch:
    """A schedule. Both the batch's growth and the decay count for the rate per sample, which is what decays.

    Raises:
        UsageError: A number makes no sense.
    """

    batch: int
    """At the beginning."""
    learning_rate: float
    """At the beginning."""
    interval: int
    """Epochs (or steps) between changes."""
    growth: int = 2
    """Factor on the batch at every change."""
    decay: float = 0.375
    """Factor on the rate per sample at every change, as a schedule with a fixed batch would have it (section 4 there):
    while the batch doubles, the rate itself falls to 0.75."""
    most: int | None = None
    """Largest batch; from there on the rate takes all of the decay."""

    def __post_init__(self) -> None:
        rules = {
            f"batch must be at least 1, and most no less, not {self.batch} and {self.most}": (
                self.batch >= 1 and (self.most is None or self.most >= self.batch)
            ),
            f"learning_rate must be positive, not {self.learning_rate}": self.learning_rate > 0,
            f"interval must be at least 1, not {self.interval}": self.interval >= 1,
            f"growth must be at least 1, not {self.growth}": self.growth >= 1,
            f"decay must be above 0, not {self.decay}": self.decay > 0,
        }
        if wrong := [what for what, holds in rules.items() if not holds]:
            raise several(wrong)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearBatch:
    """A schedule of B(t) = B(0) · (1 + growth · t), with a learning rate that is proportional to the batch.

    Raises:
        UsageError: A number makes no sense.
    """

    batch: int
    """At the beginning."""
    learning_rate: float
    """At the beginning."""
    growth: float
    """Share of the first batch that is added in each epoch (or step)."""
    most: int | None = None
    """Largest batch; from there on batch and rate stay."""

    def __post_init__(self) -> None:
        rules = {
            f"batch must be at least 1, and most no less, not {self.batch} and {self.most}": (
                self.batch >= 1 and (self.most is None or self.most >= self.batch)
            ),
            f"learning_rate must be positive, not {self.learning_rate}": self.learning_rate > 0,
            f"growth must not be negative, not {self.growth}": 0 <= self.growth < math.inf,
        }
        if wrong := [what for what, holds in rules.items() if not holds]:
            raise several(wrong)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What is trained with at one moment."""

    batch: int
    """Samples per optimizer step."""
    learning_rate: float
    """Of the optimizer."""


def phase_at(schedule: AdaBatch | LinearBatch, moment: int) -> Phase:
    """The batch and learning rate of an epoch (or step), counted from 0.

    Returns:
        Of AdaBatch, after k changes: a batch of batch · growth^k, no more than ``most``, and a rate per sample of
        decay^k of the first. Of a linear schedule: batch and rate, both grown alike.
    """
    if isinstance(schedule, LinearBatch):
        return _of_linear(schedule, max(0, moment))
    changes = max(0, moment) // schedule.interval
    batch = schedule.batch
    for _ in range(changes if schedule.growth > 1 else 0):
        if schedule.most is not None and batch * schedule.growth > schedule.most:
            break
        batch *= schedule.growth
    return Phase(batch=batch, learning_rate=schedule.learning_rate * schedule.decay**changes * batch / schedule.batch)


def _of_linear(schedule: LinearBatch, moment: int) -> Phase:
    batch = int(schedule.batch * (1 + schedule.growth * moment))
    batch = batch if schedule.most is None else min(batch, schedule.most)
    return Phase(batch=batch, learning_rate=schedule.learning_rate * batch / schedule.batch)
