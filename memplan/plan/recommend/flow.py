"""The search: the job as given, every single change, then what should be best of all combinations, each traced.

given ──► single changes ──► predicted order of all combinations ──► traced, best first, until nothing better is left
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Literal

from memplan.errors import EstimateError
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.plan.batch.headroom import limit_of
from memplan.plan.batch.split import splits
from memplan.plan.recommend.answer import Findings, compose_answer
from memplan.plan.recommend.changes import Change
from memplan.plan.recommend.evaluate import Outcome
from memplan.plan.recommend.order import saving, urgency
from memplan.plan.recommend.planned import TRACES, budget_for, can_be_planned, in_its_place, work_planned
from memplan.plan.recommend.predict import Predicted, Predictor
from memplan.plan.recommend.records import Candidate, Evaluated, Recommendation, Rejected, Search
from memplan.plan.recommend.space import (
    Combination,
    allowed,
    bases,
    changes_for,
    combine,
    is_allowed,
    split_words,
    with_changes,
)
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
        self._begun = self._end = self._started

    def answer(self) -> Recommendation:
        """Everything in turn."""
        self._trace([*self._bases, *self._likely()])
        self._begin()
        self._raise_if_hopeless()
        self._given = self._best_base()
        changes = changes_for(self._given.spec, self._search)
        singles = {change: self._alone(change) for change in changes}
        split = self._split_alone()
        usable = {change: each for change, each in singles.items() if allowed(change, self._search)}
        self._trace(self._in_order(filter(self._may_be_taken, [*split, *usable.values()])), begin_until=ALONE)
        ended = self._combine(usable, split)
        self._plan()
        every = [*split, *singles.values()]
        self._trace(self._in_order(every))
        cut = any(_key(each) not in self._outcomes for each in every)
        return compose_answer(
            Findings(
                given=self._given,
                profile=self._profile,
                search=self._search,
                outcomes=tuple(self._outcomes.values()),
                singles=tuple(every),
                skipped=tuple(self._skipped),
                considered=self._considered,
                ended="budget" if cut else ended,
                seconds=time.perf_counter() - self._started,
                batch_statistics=self._outcome(self._given).batch_statistics,
            )
        )

    def _likely(self) -> list[Candidate]:
        """What is tried whatever comes of the job as given, so that no process waits for it."""
        if len(self._bases) > 1:
            return []
        changes = changes_for(self._given.spec, self._search)
        return [self._alone(change) for change in changes if change.group == "checkpoint"]

    def _begin(self) -> None:
        """Let the time count from the start, but leave half of it."""
        budget = self._search.budget_seconds
        self._begun = time.perf_counter()
        self._end = max(self._started + budget, self._begun + budget / 2)

    def _after(self, share: float) -> float:
        """When a share of the time that the job as given has left is over."""
        return self._begun + share * (self._end - self._begun)

    def _outcome(self, candidate: Candidate) -> Outcome:
        return self._outcomes[_key(candidate)]

    def _trace(self, candidates: Iterable[Candidate], *, begin_until: float = 1.0) -> None:
        """Trace what was not traced yet; the job itself however long it takes.

        Args:
            candidates: The most wanted first.
            begin_until: Share of the time after which none begins; what runs may take the rest of it.
        """
        fresh = [each for key, each in {_key(each): each for each in candidates}.items() if key not in self._outcomes]
        timed = bool(self._outcomes)
        outcomes = self._workers.run(
            fresh,
            begin_until=self._after(begin_until) if timed else inf,
            until=self._after(1.0) if timed else inf,
        )
        for outcome in outcomes:
            self._outcomes[_key(outcome.candidate)] = outcome

    def _in_order(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The most wanted first; what may not be taken, last."""
        given, limit = self._outcome(self._given), self._limit
        return sorted(candidates, key=lambda each: (not self._may_be_taken(each), *urgency(given, each, limit)))

    @property
    def _limit(self) -> float:
        return limit_of(self._profile, self._search.limits.utilization) or inf

    def _may_be_taken(self, candidate: Candidate) -> bool:
        statistics = self._outcome(self._given).batch_statistics
        return is_allowed(candidate, self._given, self._search, batch_statistics=statistics)

    def _raise_if_hopeless(self) -> None:
        """A job that no layout can trace is the user's to put right; nothing of it is searched."""
        found = [self._outcome(each) for each in self._bases]
        if all(each.evaluated is None for each in found):
            raise found[0].error or EstimateError(found[0].reason)

    def _best_base(self) -> Candidate:
        """Of the layouts the fastest that fits, else the smallest."""
        found = [self._outcome(each) for each in self._bases]
        known = [each.evaluated for each in found if each.evaluated is not None]
        fitting = [each for each in known if each.fits]
        if fitting:
            return max(fitting, key=lambda each: each.samples_per_second).candidate
        return min(known, key=lambda each: each.device_bytes).candidate if known else self._given

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

    def _split_alone(self) -> list[Candidate]:
        """The largest smaller micro-batch, at the same global batch, with which the job should fit."""
        if "split" in self._search.keep:
            return []
        found = [each.candidate for each in combine(self._given, (), self._search)]
        smaller = [each for each in found if each.spec.batch_size < self._given.spec.batch_size]
        given = self._outcome(self._given)
        if given.evaluated is None:
            return smaller[:1]
        over = given.evaluated.high_bytes - self._limit
        return [each for each in smaller if saving(given, each) >= over][:1] or smaller[-1:]

    def _combine(self, singles: dict[Change, Candidate], split: Sequence[Candidate]) -> Literal["complete", "budget"]:
        given = self._outcome(self._given)
        if given.evaluated is None:
            return "budget"
        others = [self._outcomes.get(_key(each)) for each in split]
        known = [each.evaluated for each in others if each is not None and each.evaluated is not None]
        predictor = Predictor(given, given.evaluated, known[0] if known else None)
        for change, candidate in singles.items():
            outcome = self._outcomes.get(_key(candidate))
            if outcome is not None and outcome.evaluated is not None:
                predictor.learn(change, outcome.evaluated)
        usable = [change for change in singles if predictor.knows(change)]
        found = [each for each in combine(self._given, usable, self._search) if self._may_be_taken(each.candidate)]
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
        planning = self._workers.run([candidate], partial(work_planned, budget=budget), until=self._after(1.0))
        for outcome in planning:
            self._outcomes[_key(outcome.candidate)] = outcome

    def _best_first(self, found: Sequence[tuple[Combination, Predicted]]) -> Literal["complete", "budget"]:
        limit = self._limit
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
            self._trace([each.candidate for each, _ in wave], begin_until=COMBINED)
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
        same = evaluated.candidate.global_batch == self._given.global_batch
        return same and self._may_be_taken(evaluated.candidate)

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
