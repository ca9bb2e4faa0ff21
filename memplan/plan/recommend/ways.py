"""All ways to run a job: the job that they are compared to, what each should come to, and which may be recommended."""

from collections.abc import Iterable, Iterator, Sequence
from math import inf

from memplan.errors import EstimateError
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.measure.interval import least_high
from memplan.plan.batch.headroom import limit_of
from memplan.plan.batch.split import splits
from memplan.plan.recommend.changes import JobChange
from memplan.plan.recommend.predict import PredictedStep, Predictor
from memplan.plan.recommend.records import Candidate, Evaluated, Group, Search, shares
from memplan.plan.recommend.space import (
    Combination,
    allowed,
    changes_for,
    combine,
    excluded,
    is_allowed,
    made_of_whole_batches,
    may_be_tried,
    wanting,
    with_changes,
    with_split,
)
from memplan.plan.recommend.traces import Traces

SLACK = 1.03
"""Predicted sizes above the limit by so much are traced all the same."""
LIKELY = ("--checkpoint full", "--optimizer-impl fused")
"""Changes that are traced beside the job as given, whatever comes of it, so that no process waits for it."""

Way = tuple[Combination, PredictedStep]
"""A way to run the job, and what it should come to."""


class Ways:
    """The ways of one search."""

    def __init__(self, bases: Sequence[Candidate], profile: GpuProfile, search: Search, traces: Traces) -> None:
        self.given = bases[0]
        """The job that others are compared to."""
        self.all: tuple[Combination, ...] = ()
        """Those that may be recommended."""
        self.limit = limit_of(profile, search.limits.utilization) or inf
        """Bytes of the device that a step may have."""
        self._bases, self._profile, self._search, self._traces = bases, profile, search, traces
        self._changes: tuple[JobChange, ...] = ()

    def likely(self) -> Iterator[Candidate]:
        """Yield what to trace beside the job as given."""
        for change in self._changes_of_given():
            if change.text in LIKELY:
                yield self._alone(change)

    def prepare(self) -> None:
        """Choose the job that others are compared to, and list all ways to run it.

        Raises:
            EstimateError: No layout of the job can be traced.
        """
        self._raise_if_hopeless()
        self.given = self._best_base()
        given = self._traces.of(self.given)
        self._changes = self._changes_of_given(experts=given.experts)
        known = {change.text: change for change in self._changes}
        self._traces.predictor = Predictor(self.given, known, self._profile.context_bytes)
        for outcome in self._traces.outcomes.values():
            self._traces.predictor.learn(outcome)
        mine = [each for each in self._changes if allowed(each, self._search)]
        self.all = tuple(each for each in combine(self.given, mine, self._search) if self.may_win(each.candidate))

    def count_unseen(self) -> int:
        """Return how many ways there are, as far as the job's options say: nothing was traced."""
        mine = [each for each in self._changes_of_given() if allowed(each, self._search)]
        ways = (each.candidate for each in combine(self.given, mine, self._search))
        return sum(is_allowed(each, self.given, self._search, batch_statistics=False) for each in ways)

    def may_win(self, candidate: Candidate) -> bool:
        """Return whether a candidate may be recommended: nothing else would have to be allowed for it."""
        same = candidate.global_batch == self.given.global_batch
        return same and not self.wanting(candidate) and may_be_tried(candidate, self.given, self._search)

    def wanting(self, candidate: Candidate) -> tuple[Group, ...]:
        """Return what would have to be allowed for a candidate."""
        statistics = self._traces.of(self.given).batch_statistics
        return wanting(candidate, self.given, self._search, batch_statistics=statistics)

    def further(self) -> dict[tuple[Group, ...], list[Combination]]:
        """Return all ways to run the job, by what would have to be allowed for them."""
        ways: dict[tuple[Group, ...], list[Combination]] = {}
        for each in combine(self.given, self._changes, self._search):
            if may_be_tried(each.candidate, self.given, self._search):
                ways.setdefault(self.wanting(each.candidate), []).append(each)
        return ways

    def ends(self) -> list[Candidate]:
        """Return the job as given with the smallest and the largest micro-batch: what lies between is bounded then."""
        plain = sorted((each.candidate for each in self.all if not each.changes), key=lambda each: each.spec.batch_size)
        return [*plain[:1], *plain[1:][-1:]]

    def singles(self) -> Iterator[Candidate]:
        """Yield every change alone, and the split of the batch."""
        yield from self._split_alone()
        yield from self.alone()

    def alone(self) -> Iterator[Candidate]:
        """Yield every change alone, those first that may be made; of layouts those with whole layers and samples."""
        changes = self._changes or self._changes_of_given()
        for change in sorted(changes, key=lambda each: not allowed(each, self._search)):
            alone = self._alone(change)
            if _is_plain(alone.spec) and not excluded(alone.spec) and self._search.refusal(alone.spec) is None:
                yield alone

    def fitting(self) -> list[Evaluated]:
        """Return the evaluated candidates that fit and may be recommended."""
        found = [each.evaluated for each in self._traces.outcomes.values() if each.evaluated is not None]
        return [each for each in found if each.fits and self.may_win(each.candidate)]

    def best(self) -> Evaluated | None:
        """Return the cheapest of them."""
        return min(self.fitting(), key=self.cost_of, default=None)

    def lowest(self) -> float:
        """Return what it costs; infinite where nothing fits."""
        return min(map(self.cost_of, self.fitting()), default=inf)

    # What they should come to.

    def predicted(self, ways: Iterable[Combination]) -> list[Way]:
        """Return what was not traced of these ways, and what each should come to."""
        predictor = self._predictor()
        return [(each, predictor.predict(each)) for each in ways if not self._traces.has(each.candidate)]

    def should_fit(self, predicted: PredictedStep) -> bool:
        """Return whether it is worth a trace to see."""
        return self.over(predicted) <= (SLACK - 1) * self.limit

    def over(self, predicted: PredictedStep) -> float:
        """Bytes above the limit, as much below the device as the interval of the job as given needs."""
        given = self._traces.evaluated(self.given)
        margin = 1.0 if self._search.limits.utilization else given.high_bytes / given.device_bytes
        return predicted.device_bytes * margin - self.limit

    def needed(self, spec: JobSpec, device_bytes: int) -> int:
        """Bytes that must be within the limit where a job takes so many at least."""
        return device_bytes if self._search.limits.utilization else least_high(self._profile, spec, device_bytes)

    def cost(self, device_bytes: float, seconds: float) -> float:
        """What ways are ranked by."""
        share = device_bytes / (self._profile.usable_bytes or device_bytes or 1)
        return self._search.alpha * share + self._search.beta * seconds / self._traces.evaluated(self.given).time.total

    def cost_of(self, evaluated: Evaluated) -> float:
        """The same of what was traced."""
        return self.cost(evaluated.device_bytes, evaluated.time.total)

    def expected(self, way: Way) -> tuple[float, int, int]:
        """Return the order in which ways are tried: by cost, then by how little changes."""
        combination, predicted = way
        cost = self.cost(predicted.device_bytes, predicted.step_seconds)
        return cost, len(combination.changes), predicted.device_bytes

    def cost_so_far(self, way: Combination) -> float:
        """Return what a way costs, or should cost."""
        if not self._traces.has(way.candidate):
            return self.expected((way, self._predictor().predict(way)))[0]
        known = self._traces.of(way.candidate).evaluated
        return inf if known is None else self.cost_of(known)

    # The job as given.

    def _changes_of_given(self, *, experts: bool = False) -> tuple[JobChange, ...]:
        """Return the changes to try; of 16 bits bfloat16, or float16 where that is emulated."""
        found = changes_for(self.given.spec, self._search, experts=experts)
        other = ("bf16", "bf16-mixed") if "bfloat16" in self._profile.lacks else ("fp16", "fp16-mixed")
        return tuple(each for each in found if dict(each.fields).get("precision") not in other)

    def _raise_if_hopeless(self) -> None:
        """A job that no layout can trace is the user's to put right; nothing of it is searched."""
        found = [self._traces.of(each) for each in self._bases if self._traces.has(each)]
        if all(each.evaluated is None for each in found):
            error = found[0].error or EstimateError(found[0].reason)
            if self.given.changes and self._search.has_few_samples:
                least = self._search.gpus
                hint = f"of fewer samples than ranks, ranks share layers: --target-batch {least} needs none that do"
                raise type(error)(error.what, where=error.where, hint=hint)
            raise error

    def _best_base(self) -> Candidate:
        """Of the layouts the fastest that fits, else the smallest."""
        traced = [self._traces.of(each).evaluated for each in self._bases if self._traces.has(each)]
        known = [each for each in traced if each is not None]
        fitting = [each for each in known if each.fits]
        if fitting:
            return max(fitting, key=lambda each: each.samples_per_second).candidate
        return min(known, key=lambda each: each.device_bytes).candidate

    def _alone(self, change: JobChange) -> Candidate:
        """A change with the split that comes nearest to the job's own at the same global batch."""
        made, batch = with_changes(self.given, (change,)), self.given.spec.batch_size
        if not made_of_whole_batches(made, self.given.global_batch):
            return made
        options = splits(self.given.global_batch, shares(made.spec.parallel))
        return with_split(made, self.given, next(each for each in options if each.micro_batch <= batch))

    def _split_alone(self) -> list[Candidate]:
        """The largest smaller micro-batch, at the same global batch, with which the job should fit."""
        predictor = self._predictor()
        found = [each for each in combine(self.given, (), self._search) if "split" not in self._search.keep]
        smaller = [each for each in found if each.candidate.spec.batch_size < self.given.spec.batch_size]
        fitting = [each for each in smaller if self.over(predictor.predict(each)) <= 0]
        return [each.candidate for each in (fitting[:1] or smaller[-1:])]

    def _predictor(self) -> Predictor:
        assert self._traces.predictor is not None  # noqa: S101 - it is made before the ways.
        return self._traces.predictor


def _is_plain(spec: JobSpec) -> bool:
    parallel = spec.parallel
    return parallel.tensor == parallel.context == parallel.pipeline == parallel.expert == 1
