"""What to try first, when nothing but the job itself was traced: guesses that decide the order, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass

from memplan.lifetime.records import Category
from memplan.plan.recommend.evaluate import Outcome
from memplan.plan.recommend.records import Candidate, Group

MOVING = (Category.ACTIVATION, Category.TEMPORARY, Category.WORKSPACE, Category.INPUT)
"""What grows with the micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """What a group of changes usually does."""

    saves: Mapping[Category, float]
    """Shares of the job's bytes at its peak."""
    slower: float
    """Factor on the time of a step."""


ACTIVATION, GRADIENT, STATE = Category.ACTIVATION, Category.GRADIENT, Category.OPTIMIZER_STATE
GUESSES: Mapping[Group, Guess] = {
    "checkpoint": Guess(saves={ACTIVATION: 0.8}, slower=1.3),
    "offload": Guess(saves={ACTIVATION: 0.8}, slower=2.0),
    "loss": Guess(saves={ACTIVATION: 0.1, Category.TEMPORARY: 0.5}, slower=1.0),
    "attention": Guess(saves={ACTIVATION: 0.3}, slower=0.9),
    "optimizer-step": Guess(saves={GRADIENT: 0.1, Category.TEMPORARY: 0.5}, slower=0.99),
    "optimizer": Guess(saves={STATE: 0.75}, slower=1.0),
    "lora": Guess(saves={STATE: 0.9, GRADIENT: 0.9}, slower=0.8),
    "quantize": Guess(saves={STATE: 0.9, GRADIENT: 0.9, Category.PARAMETER: 0.7}, slower=1.0),
    "precision": Guess(saves={STATE: 0.5, GRADIENT: 0.5, Category.PARAMETER: 0.5, ACTIVATION: 0.2}, slower=0.9),
    "parallel": Guess(saves={STATE: 0.7, GRADIENT: 0.7, Category.PARAMETER: 0.7}, slower=1.1),
    "split": Guess(saves={}, slower=1.05),
}
"""Choice of this project; measured on no job."""


def moving_bytes(given: Outcome) -> int:
    """Bytes of a job's peak that grow with its micro-batch, about."""
    return sum(given.breakdown.get(category, 0) for category in MOVING)


def accumulated_bytes(given: Outcome, candidate: Candidate) -> int:
    """Gradients that wait during a forward for one that comes to accumulate, where the job as given does not."""
    if candidate.spec.grad_accum == 1 or given.candidate.spec.grad_accum > 1:
        return 0
    return round(given.breakdown.get(Category.PARAMETER, 0) * given.trainable_share)


def saving(given: Outcome, candidate: Candidate) -> float:
    """Bytes that a candidate should save of the job as given."""
    shares = [GUESSES[group].saves for group in candidate.groups if group not in given.candidate.groups]
    saved = sum(share * given.breakdown.get(category, 0) for each in shares for category, share in each.items())
    left = candidate.spec.batch_size / given.candidate.spec.batch_size
    return saved + (1 - left) * moving_bytes(given) - accumulated_bytes(given, candidate)


def slowness(given: Outcome, candidate: Candidate) -> float:
    """Factor on the job's time that a candidate should come to."""
    factor = 1.0
    for group in candidate.groups:
        factor *= GUESSES[group].slower if group not in given.candidate.groups else 1.0
    return factor


def urgency(given: Outcome, candidate: Candidate, limit_bytes: float) -> tuple[float, ...]:
    """Sorts candidates, the most wanted first.

    Where the job fits: what saves most time and memory, splits of its batch last. Where it does not: what should fit
    first, the fastest of it before others; then what should save most.

    Args:
        given: The job.
        candidate: The job with some change.
        limit_bytes: What may be taken of the device.
    """
    known = given.evaluated
    saved, slower = saving(given, candidate), slowness(given, candidate)
    if known is None:
        return (slower,)
    if known.fits:
        return float("split" in candidate.groups), slower - saved / max(1, known.device_bytes)
    fits = known.high_bytes - saved <= limit_bytes
    return (0.0, slower) if fits else (1.0, -saved)
