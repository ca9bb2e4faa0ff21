"""What a combination should take and last, from what its changes did one by one: decides what is traced, nothing else.

peak = state - what each change saves of it + activations per sample x samples x shares that changes leave of them
       + gradients that wait, where the candidate accumulates and the job as given does not
"""

from dataclasses import dataclass
from math import prod

from memplan.plan.recommend.changes import Change
from memplan.plan.recommend.evaluate import Outcome
from memplan.plan.recommend.order import accumulated_bytes, moving_bytes
from memplan.plan.recommend.records import Evaluated
from memplan.plan.recommend.space import Combination

LEAST_SHARE = 0.02
"""Of the activations, whatever is done: a guess that only orders traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one change did to the job."""

    saved: int
    """Device bytes."""
    slower: float
    """Factor on the time of one sample."""
    optimizer: float
    """Seconds more of the optimizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What a combination should come to."""

    device_bytes: int
    """Device peak."""
    step_seconds: float
    """One optimizer step."""


class Predictor:
    """The job as given, at two micro-batches, and the effects of single changes."""

    def __init__(self, outcome: Outcome, given: Evaluated, other: Evaluated | None) -> None:
        """Know the job.

        Args:
            outcome: Of the job as it is.
            given: Its figures.
            other: At another micro-batch; None where none was traced: what its peak is made of must do.
        """
        self._outcome, self._given = outcome, given
        self._effects: dict[str, Effect] = {}
        batch = given.candidate.spec.batch_size
        self._per_sample = moving_bytes(outcome) / batch
        if other is not None:
            apart = batch - other.candidate.spec.batch_size
            waiting = accumulated_bytes(outcome, other.candidate)
            self._per_sample = max(0.0, (given.device_bytes + waiting - other.device_bytes) / apart)

    def learn(self, change: Change, evaluated: Evaluated) -> None:
        """See what a change did, at whichever split it was tried."""
        batch = evaluated.candidate.spec.batch_size
        expected = self._given.device_bytes + self._per_sample * (batch - self._given.candidate.spec.batch_size)
        expected += accumulated_bytes(self._outcome, evaluated.candidate)
        self._effects[change.text] = Effect(
            saved=round(expected - evaluated.device_bytes),
            slower=_per_sample_seconds(evaluated) / (_per_sample_seconds(self._given) or 1.0),
            optimizer=evaluated.time.optimizer - self._given.time.optimizer,
        )

    def knows(self, change: Change) -> bool:
        """Was a change tried with success?"""
        return change.text in self._effects

    def predict(self, combination: Combination) -> Predicted:
        """What it should take and last."""
        spec = combination.candidate.spec
        effects = [(change.kind, self._effects[change.text]) for change in combination.changes]
        given = self._given.candidate.spec.batch_size
        activations = self._per_sample * given
        state = self._given.device_bytes - activations + accumulated_bytes(self._outcome, combination.candidate)
        state -= sum(effect.saved for kind, effect in effects if kind == "state")
        shares = [
            min(1.0, max(LEAST_SHARE, 1 - effect.saved / activations)) if activations else 1.0
            for kind, effect in effects
            if kind == "activation"
        ]
        samples = spec.batch_size * spec.grad_accum
        seconds = _per_sample_seconds(self._given) * samples * prod(effect.slower for _, effect in effects)
        optimizer = self._given.time.optimizer + sum(effect.optimizer for _, effect in effects)
        return Predicted(
            device_bytes=round(state + self._per_sample * spec.batch_size * prod(shares)),
            step_seconds=seconds + max(0.0, optimizer),
        )


def _per_sample_seconds(evaluated: Evaluated) -> float:
    """Of one sample on one rank, the optimizer aside."""
    spec = evaluated.candidate.spec
    return (evaluated.time.total - evaluated.time.optimizer) / (spec.batch_size * spec.grad_accum)
