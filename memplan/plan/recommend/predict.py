"""Predict memory and time of a configuration from the traces nearest to it: decides what is traced, nothing else.

peak = most of any phase: bytes by category of the traced relative, times what each further change leaves of them

The relative has the most of the changes; a further change does what it did where two traces differ by it alone, in the
likest company, else what such a change usually does (``memplan.plan.recommend.guesses``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

from memplan.job.spec import JobSpec
from memplan.lifetime.records import Category
from memplan.plan.recommend.changes import JobChange
from memplan.plan.recommend.evaluate import Evaluation
from memplan.plan.recommend.guesses import guess
from memplan.plan.recommend.phases import Peaks
from memplan.plan.recommend.records import Candidate, Evaluated
from memplan.plan.recommend.space import Combination

MOVING = (Category.ACTIVATION, Category.TEMPORARY, Category.INPUT)
"""What grows with the micro-batch in forward and backward."""
STAYING = (Category.ACTIVATION, Category.INPUT)
"""What of it is left in the optimizer's step, whose temporaries are as large as parameters."""

Texts = frozenset[str]
"""What is typed of a set of changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedStep:
    """The predicted memory and time of a configuration."""

    device_bytes: int
    """Device peak."""
    step_seconds: float
    """One optimizer step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of one change on any job."""

    of: Callable[[str, Category, float], float]
    """Phase, category and its bytes → bytes after the change."""
    slower: float
    """Factor on the time of a sample."""
    optimizer: float
    """Seconds more of the optimizer."""
    guessed: bool
    """Was it not seen in any trace?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A candidate that was traced."""

    evaluated: Evaluated
    peaks: Peaks
    slack: float
    """Device bytes for each of the peak's requested ones."""

    @property
    def spec(self) -> JobSpec:
        return self.evaluated.candidate.spec


class Predictor:
    """Learns from traces what changes do."""

    def __init__(self, given: Candidate, changes: Mapping[str, JobChange], context_bytes: int) -> None:
        """Know nothing yet.

        Args:
            given: The job as given; its outcome is to be learned before anything is predicted.
            changes: What is typed → every change that may come.
            context_bytes: What a process takes of the device beside the allocator.
        """
        self._given, self._changes, self._context = given, changes, context_bytes
        self._known: dict[Texts, list[_Known]] = {}

    def learn(self, outcome: Evaluation) -> None:
        """See what came of a candidate."""
        texts = self._texts(outcome.candidate)
        if outcome.evaluated is None:
            return
        most = max((sum(held.values()) for held in outcome.peaks.values()), default=0.0)
        if most and texts <= self._changes.keys():
            slack = max(0, outcome.evaluated.device_bytes - self._context) / most
            known = _Known(evaluated=outcome.evaluated, peaks=outcome.peaks, slack=slack)
            self._known.setdefault(texts, []).append(known)

    def predict(self, combination: Combination) -> PredictedStep:
        """Return the predicted memory and time of a configuration."""
        spec = combination.candidate.spec
        texts = frozenset(change.text for change in combination.changes)
        nearest = max((each for each in self._known if each <= texts), key=len)
        known = min(self._known[nearest], key=lambda each: abs(each.spec.batch_size - spec.batch_size))
        effects = [self._effect(change, texts) for change in combination.changes if change.text not in nearest]
        # What one change adds, another may take a share of: a peak that moves finds more gradients, of half the bytes.
        effects.sort(key=lambda effect: effect.guessed)
        most = max(
            sum(reduce(lambda left, effect: effect.of(phase, name, left), effects, size) for name, size in held.items())
            for phase, held in resized(known.peaks, known.spec, spec).items()
        )
        fixed, per_sample = _pace(known.evaluated)
        for effect in effects:
            per_sample *= effect.slower
        optimizer = known.evaluated.time.optimizer + sum(effect.optimizer for effect in effects)
        return PredictedStep(
            device_bytes=round(most * known.slack) + self._context,
            step_seconds=_passes(spec) * (fixed + per_sample * spec.batch_size) + max(0.0, optimizer),
        )

    def _texts(self, candidate: Candidate) -> Texts:
        pairs = zip(candidate.changes, candidate.groups, strict=True)
        return frozenset(text for text, group in pairs if group != "split" and text not in self._given.changes)

    def _effect(self, change: JobChange, among: Texts) -> Effect:
        """The effect of a change: of those that were seen the one in the likest company, for one may depend on another.

        The host updates what is offloaded, and there a fused update saves far more than on a device.
        """
        seen = [each for each in self._known if change.text in each and each - {change.text} in self._known]
        if not seen:
            return _guessed(change, self._given.spec)
        likest = max(seen, key=lambda each: (len(each & among), -len(each - among)))
        return _measured(self._known[likest - {change.text}][0], self._known[likest][0])


def resized(peaks: Peaks, before: JobSpec, after: JobSpec) -> Peaks:
    """The same step with another micro-batch, and with gradients that wait where it accumulates."""
    ratio = after.batch_size / before.batch_size
    waiting = dict(peaks.get("optimizer", {})).get(Category.GRADIENT, 0.0)
    made: dict[str, dict[Category, float]] = {}
    for phase, held in peaks.items():
        moving = STAYING if phase == "optimizer" else MOVING
        made[phase] = {name: size * ratio if name in moving else size for name, size in held.items()}
        if phase != "optimizer" and (_passes(after) > 1) != (_passes(before) > 1):
            made[phase][Category.GRADIENT] = waiting if _passes(after) > 1 else 0.0
    return made  # type: ignore[return-value]


def _passes(spec: JobSpec) -> int:
    """Micro-batches of one step of a rank."""
    return spec.grad_accum * spec.parallel.step_batches


def _measured(without: _Known, found: _Known) -> Effect:
    """Return the effect of a change where one trace has it and another has not."""
    before = resized(without.peaks, without.spec, found.spec)
    peaks = found.peaks

    def of(phase: str, name: Category, size: float) -> float:
        old = before.get(phase, {}).get(name, 0.0)  # type: ignore[call-overload]
        new = peaks.get(phase, {}).get(name, 0.0)  # type: ignore[call-overload]
        # What a change saves goes by what there is to save, what it adds does not.
        return float(size * new / old if new <= old and old else size + new - old)

    fixed, per_sample = _pace(without.evaluated)
    now_fixed, now = _pace(found.evaluated)
    batch = found.spec.batch_size
    return Effect(
        of=of,
        slower=(now_fixed + now * batch) / ((fixed + per_sample * batch) or 1.0),
        optimizer=found.evaluated.time.optimizer - without.evaluated.time.optimizer,
        guessed=False,
    )


def _guessed(change: JobChange, given: JobSpec) -> Effect:
    thought = guess(change, given.parallel)

    def of(phase: str, name: Category, size: float) -> float:
        alone = thought.step if phase == "optimizer" else thought.passes
        return size * thought.leaves.get(name, 1.0) * alone.get(name, 1.0)

    return Effect(of=of, slower=thought.slower, optimizer=0.0, guessed=True)


def _pace(evaluated: Evaluated) -> tuple[float, float]:
    """Seconds of a micro-batch that do not go by its size, and those of each sample, the optimizer aside."""
    time, spec = evaluated.time, evaluated.candidate.spec
    each = (time.total - time.optimizer) / _passes(spec)
    waits = time.launch + time.exposed_communication + (time.offload if spec.parallel.offload else 0.0)
    fixed = min(each, waits / _passes(spec))
    return fixed, (each - fixed) / spec.batch_size
