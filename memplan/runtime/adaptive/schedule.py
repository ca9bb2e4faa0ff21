"""AdaBatch: a batch that grows while training goes on (Devarakonda, Naumov, Garland 2017, arXiv:1712.02029). Pure."""

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
class Phase:
    """What is trained with at one moment."""

    batch: int
    """Samples per optimizer step."""
    learning_rate: float
    """Of the optimizer."""


def phase_at(schedule: AdaBatch, moment: int) -> Phase:
    """The batch and learning rate of an epoch (or step), counted from 0.

    Args:
        schedule: The schedule.
        moment: In the unit of its interval.

    Returns:
        After k changes a batch of batch · growth^k, no more than ``most``, and a rate per sample of decay^k of the
        first.
    """
    changes = max(0, moment) // schedule.interval
    batch = schedule.batch
    for _ in range(changes if schedule.growth > 1 else 0):
        if schedule.most is not None and batch * schedule.growth > schedule.most:
            break
        batch *= schedule.growth
    return Phase(batch=batch, learning_rate=schedule.learning_rate * schedule.decay**changes * batch / schedule.batch)
