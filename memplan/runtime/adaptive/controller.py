"""Batch sizes that follow memory: towards a target share of use, within bounds, and at rest once there. Pure."""

from dataclasses import dataclass, replace

from memplan.errors import UsageError, several
from memplan.findings.utilization import BALANCED


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy:
    """What is wanted.

    Raises:
        UsageError: The numbers make no sense together.
    """

    least: int = 1
    """Smallest batch."""
    most: int
    """Largest batch."""
    target: float = BALANCED.target
    """Share of the limit that steps should use at their peak."""
    slack: float = 0.05
    """Half the width of the dead band around the target: a size whose reading lies in it is left alone. More than the
    noise of readings."""
    patience: int = 3
    """Readings in a row below the band before the batch grows. It shrinks at once."""
    growth: float = 2.0
    """A batch grows at most by this factor."""

    def __post_init__(self) -> None:
        rules = {
            f"least must be at least 1, and most no less, not {self.least} and {self.most}": 1
            <= self.least
            <= self.most,
            f"target and slack must leave a band within 0 and 1, not {self.target} ± {self.slack}": (
                0 < self.slack < self.target <= 1 - self.slack
            ),
            f"patience must be at least 1, not {self.patience}": self.patience >= 1,
            f"growth must be more than 1, not {self.growth}": self.growth > 1,
        }
        if wrong := [what for what, holds in rules.items() if not holds]:
            raise several(wrong)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchState:
    """Where a controller stands."""

    size: int
    """Batch to take next."""
    over: int | None = None
    """Smallest size whose reading was above the band; the batch never grows to it again, so that it comes to rest."""
    low: int = 0
    """Readings in a row below the band."""


def next_batch(policy: BatchPolicy, state: BatchState, use: float) -> BatchState:
    """The batch after a reading.

    Above the band it shrinks in proportion, below it grows in proportion: memory is a fixed part and one that grows
    with the batch, so that growing in proportion stays below the target. Where that is not so, ``over`` halves the way.

    Args:
        policy: What is wanted.
        state: Before the reading.
        use: Peak of the last step as a share of the limit; ``math.inf`` after running out of memory.

    Returns:
        The state to go on from. The sequence of sizes changes finitely often, whatever is read.

    Raises:
        UsageError: The reading is negative or no number.
    """
    if not use >= 0:
        raise UsageError(f"a share of use cannot be {use}")
    size = min(max(state.size, policy.least), policy.most)
    if size != state.size:
        return BatchState(size=size, over=state.over)  # What was read says nothing of this size.
    if use > policy.target + policy.slack:
        over = size if state.over is None else min(size, state.over)
        wanted = min(size - 1, int(size * max(policy.target / use, 0.5)))
        return BatchState(size=max(policy.least, wanted), over=over)
    if use >= policy.target - policy.slack:
        return replace(state, size=size, low=0)
    if state.low + 1 < policy.patience:
        return replace(state, size=size, low=state.low + 1)
    return BatchState(size=_larger(policy, size, state.over, use), over=state.over)


def _larger(policy: BatchPolicy, size: int, over: int | None, use: float) -> int:
    factor = min(policy.growth, policy.target / use) if use > 0 else policy.growth
    wanted = min(policy.most, max(size + 1, int(size * factor)))
    return wanted if over is None else max(size, min(wanted, (size + over) // 2))


def workload_changed(state: BatchState) -> BatchState:
    """The state for other work (longer sequences, another phase): sizes that were too large may fit now."""
    return BatchState(size=state.size)
