"""The search: the job as given, every single change, then what should be best of all combinations, each traced.

given ──► single changes ──► predicted order of all combinations ──► traced, best first, until nothing better is left
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from memplan.errors import EstimateError
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.plan.batch.headroom import limit_of
from memplan.plan.batch.split import splits
from memplan.plan.recommend.answer import Findings, compose_answer
from memplan.plan.recommend.changes import Change
from memplan.plan.recommend.evaluate import Outcome
from memplan.plan.recommend.planned import TRACES, budget_for, can_be_planned, in_its_place, work_planned
from memplan.plan.recommend.predict import Predicted, Predictor
from memplan.plan.recommend.records import Candidate, Evaluated, Recommendation, Rejected, Search
from memplan.plan.recommend.space import Combination, allowed, bases, changes_for, combine, split_words, with_changes
from memplan.plan.recommend.workers import Workers
from memplan.units import format_bytes

ENOUGH = 5
"""Configurations that fit, after which only what should be better is traced."""
SLACK = 1.03
"""Predicted sizes above the limit by so much are traced all the same."""
ALONE, COMBINED = 0.5, 0.8
"""Shares of the time after which single changes give way to combinations of those that are known, and these to the
changes that are left, those that the search may not use among them."""
LEAST_TRIED = 4
"""Smallest combinations that are traced where none should fit."""


def search_here(
    spec: JobSpec,
    profile: GpuProfile,
    search: Search,
    *,
    timeout: float,
    progress: Callable[[str], None] = lambda _: None,
) -> Recommendation:
    """Find the best way to run a job.

    Args:
        spec: The job as given.
        profile: The device.
        search: How to search, and for what.
        timeout: Seconds for one trace.
        progress: Told what happens now.

    Raises:
        UsageError: Ranks and batch do not go together.
        EstimateError: The job as given cannot be traced, nor any change of it.
    """
    workers = Workers(profile, search.limits, processes=search.processes, timeout=timeout, progress=progress)
    return _Searching(spec, profile, search, workers).answer()


class _Searching:
    """One job on the way to an answer."""

    def __init__(self, spec: JobSpec, profile: GpuProfile, search: Search, workers: Workers) -> None:
        self._started = time.perf_counter()
        self._profile, self._search, self._workers = profile, search, workers
        self._bases = bases(spec, search)
        self._given = self._bases[0]
        self._outcomes: dict[str, Outcome] = {}
        self._skipped: list[Rejected] = []
        self._considered = 0
        self._begun = self._started

    def answer(self) -> Recommendation:
        """Everything in turn."""
        self._trace(self._bases)
        self._begun = time.perf_counter()
        self._raise_if_hopeless()
        self._given = self._best_base()
        changes = sorted(changes_for(self._given.spec, self._search), key=self._hopeless)
        singles = {change: self._alone(change) for change in changes}
        usable = [change for change in changes if allowed(change, self._search)]
        smaller = self._smaller_batches()
        alone = [singles[change] for change in usable]
        self._trace([self._other_batch(), *smaller, *alone], until=self._after(ALONE))
        ended = self._combine({change: singles[change] for change in usable})
        self._plan()
        self._trace(list(singles.values()), until=self._after(1.0))
        return compose_answer(
            Findings(
                given=self._given,
                profile=self._profile,
                search=self._search,
                outcomes=tuple(self._outcomes.values()),
                singles=(
                    *((candidate, True) for candidate in smaller),
                    *((candidate, allowed(change, self._search)) for change, candidate in singles.items()),
                ),
                skipped=tuple(self._skipped),
                considered=self._considered,
                ended=ended,
                seconds=time.perf_counter() - self._started,
            )
        )

    def _after(self, share: float) -> float:
        """When a share of the time is over."""
        return self._begun + share * self._search.budget_seconds

    def _outcome(self, candidate: Candidate) -> Outcome:
        return self._outcomes[_key(candidate)]

    def _trace(self, candidates: Sequence[Candidate], *, until: float = float("inf")) -> None:
        """Trace what was not traced yet, in waves, so that the time can run out between them."""
        fresh = [each for key, each in {_key(each): each for each in candidates}.items() if key not in self._outcomes]
        size = self._workers.processes
        for start in range(0, len(fresh), size):
            if time.perf_counter() > until:
                return
            for outcome in self._workers.run(fresh[start : start + size]):
                self._outcomes[_key(outcome.candidate)] = outcome

    def _raise_if_hopeless(self) -> None:
        """A job that no layout can trace is the user's to put right; nothing of it is searched."""
        found = [self._outcome(each) for each in self._bases]
        if all(each.evaluated is None for each in found):
            raise found[0].error or EstimateError(found[0].reason)

    def _hopeless(self, change: Change) -> bool:
        """Should a change wait? What saves activations comes first where the job does not fit, else last."""
        given = self._outcome(self._given).evaluated
        fits = given is not None and given.fits
        return (change.kind == "activation") == fits

    def _best_base(self) -> Candidate:
        """Of the layouts the fastest that fits, else the smallest."""
        found = [self._outcome(each) for each in self._bases]
        known = [each.evaluated for each in found if each.evaluated is not None]
        fitting = [each for each in known if each.fits]
        if fitting:
            return max(fitting, key=lambda each: each.samples_per_second).candidate
        return min(known, key=lambda each: each.device_bytes).candidate if known else self._given

    def _other_batch(self) -> Candidate:
        """The job at another micro-batch, for the activations of a sample."""
        spec = self._given.spec
        other = spec.batch_size // 2 or 2
        words = split_words(other, spec.grad_accum, spec)
        return replace(
            self._given,
            spec=replace(spec, batch_size=other),
            changes=(*self._given.changes, words),
            groups=(*self._given.groups, "split"),
        )

    def _alone(self, change: Change) -> Candidate:
        """A change with the split that comes nearest to the job's own at the same global batch."""
        made = with_changes(self._given, (change,))
        ranks = made.spec.parallel.data_ranks
        if self._given.global_batch % ranks:
            return made
        batch = self._given.spec.batch_size
        split = next(each for each in splits(self._given.global_batch, ranks) if each.micro_batch <= batch)
        if (split.micro_batch, split.grad_accum) == (batch, made.spec.grad_accum):
            return made
        words = split_words(split.micro_batch, split.grad_accum, made.spec)
        return replace(
            made,
            spec=replace(made.spec, batch_size=split.micro_batch, grad_accum=split.grad_accum),
            changes=(*made.changes, words),
            groups=(*made.groups, "split"),
        )

    def _smaller_batches(self) -> list[Candidate]:
        """The next smaller micro-batch at the same global batch."""
        if "split" in self._search.keep:
            return []
        found = [each.candidate for each in combine(self._given, (), self._search)]
        smaller = [each for each in found if each.spec.batch_size < self._given.spec.batch_size]
        return smaller[:1]

    def _combine(self, singles: dict[Change, Candidate]) -> Literal["complete", "budget"]:
        given = self._outcome(self._given).evaluated
        if given is None:
            return "budget"
        other = self._other_batch()
        known = self._outcomes.get(_key(other))
        predictor = Predictor(given, known.evaluated if known is not None else None)
        for change, candidate in singles.items():
            outcome = self._outcomes.get(_key(candidate))
            if outcome is not None and outcome.evaluated is not None:
                predictor.learn(change, outcome.evaluated)
        usable = [change for change in singles if predictor.knows(change)]
        found = list(combine(self._given, usable, self._search))
        self._considered = len(found)
        return self._best_first([(each, predictor.predict(each)) for each in found])

    def _plan(self) -> None:
        """Put a checkpoint plan in the place of the best full checkpointing, where there is time for one."""
        full = [each for each in self._evaluated if each.fits and self._may_win(each)]
        full = [each for each in full if can_be_planned(each.candidate.spec) and "checkpoint" in each.candidate.groups]
        best = min(full, key=self._cost_of, default=None)
        if best is None or self._search.plan_file is None:
            return
        candidate = in_its_place(best, self._search.plan_file)
        spent = (time.perf_counter() - self._started) / max(1, len(self._outcomes)) * self._workers.processes
        if time.perf_counter() + TRACES * spent > self._after(1.0):
            reason = "a checkpoint plan takes longer than is left of --search-budget"
            self._skipped.append(Rejected(candidate=candidate, reason=reason, traced=False))
            return
        budget = budget_for(best, self._profile, self._search.limits)
        for outcome in self._workers.run([candidate], partial(work_planned, budget=budget)):
            self._outcomes[_key(outcome.candidate)] = outcome

    def _best_first(self, found: Sequence[tuple[Combination, Predicted]]) -> Literal["complete", "budget"]:
        limit = limit_of(self._profile, self._search.limits.utilization) or float("inf")
        hopeful = [each for each in found if each[1].device_bytes <= SLACK * limit]
        hopeful.sort(key=lambda each: (self._cost(each[1]), len(each[0].changes)))
        if not hopeful:
            hopeful = sorted(found, key=lambda each: each[1].device_bytes)[:LEAST_TRIED]
        waiting = [each for each in hopeful if _key(each[0].candidate) not in self._outcomes]
        while waiting:
            if time.perf_counter() > self._after(COMBINED):
                return "budget"
            if self._is_settled(waiting[0][1]):
                break
            wave, waiting = waiting[: self._workers.processes], waiting[self._workers.processes :]
            self._trace([each.candidate for each, _ in wave])
        self._skip(found, limit)
        return "complete"

    def _is_settled(self, best_left: Predicted) -> bool:
        """Is enough known, and nothing better to be expected?"""
        fitting = [self._cost_of(each) for each in self._evaluated if each.fits and self._may_win(each)]
        return len(fitting) >= ENOUGH and min(fitting) <= self._cost(best_left)

    @property
    def _evaluated(self) -> list[Evaluated]:
        return [each.evaluated for each in self._outcomes.values() if each.evaluated is not None]

    def _may_win(self, evaluated: Evaluated) -> bool:
        forbidden = {"precision", "optimizer", "lora", "quantize"} - set(self._search.allow)
        same = evaluated.candidate.global_batch == self._given.global_batch
        return same and not forbidden & set(evaluated.candidate.groups)

    def _cost(self, predicted: Predicted) -> float:
        share = predicted.device_bytes / (self._profile.usable_bytes or predicted.device_bytes or 1)
        return self._search.alpha * share + self._search.beta * predicted.step_seconds

    def _cost_of(self, evaluated: Evaluated) -> float:
        predicted = Predicted(device_bytes=evaluated.device_bytes, step_seconds=evaluated.time.total)
        return self._cost(predicted)

    def _skip(self, found: Sequence[tuple[Combination, Predicted]], limit: float) -> None:
        """Remember what was not traced because it should not fit."""
        for combination, predicted in found:
            over = predicted.device_bytes - limit
            if over > (SLACK - 1) * limit and _key(combination.candidate) not in self._outcomes:
                reason = f"about {format_bytes(int(over))} over the device, by the changes' own traces"
                self._skipped.append(Rejected(candidate=combination.candidate, reason=reason, traced=False))


def _key(candidate: Candidate) -> str:
    return repr(candidate.spec)
