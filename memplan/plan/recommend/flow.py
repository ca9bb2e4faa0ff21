"""The search: the job as given, then what should be best of all ways to run it, until nothing better is left.

given ──► all ways in predicted order ──► traced, best first ──┬─► something fits: a checkpoint plan, single changes
              ▲                              │ every trace      └─► nothing does: what more would have to be allowed
              └──────────────────────────────┘ teaches
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Literal

from memplan.errors import EstimateError
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.measure.over import over
from memplan.plan.batch.headroom import limit_of
from memplan.plan.batch.split import splits
from memplan.plan.recommend.answer import SearchOutcome, compose_answer
from memplan.plan.recommend.changes import JobChange
from memplan.plan.recommend.checkpoint_plan import TRACES, Planning, budget_for, can_be_planned, in_its_place
from memplan.plan.recommend.evaluate import Evaluation, work
from memplan.plan.recommend.exclusions import excluded
from memplan.plan.recommend.predict import PredictedStep, Predictor
from memplan.plan.recommend.records import Candidate, Evaluated, Group, Recommendation, Rejected, Search, shares
from memplan.plan.recommend.space import (
    Combination,
    allowed,
    bases,
    changes_for,
    combine,
    is_kept,
    made_of_whole_batches,
    wanting,
    with_changes,
    with_split,
)
from memplan.plan.recommend.workers import Work, Workers
from memplan.units import format_bytes

ENOUGH = 5
"""Configurations that fit, after which only what should be better is traced."""
SLACK = 1.03
"""Predicted sizes above the limit by so much are traced all the same."""
SEARCHED = 0.8
"""Share of the time after which the search leaves the rest to the single changes."""
SMALLEST = 2
"""Smallest ways that are traced where none should fit: that they do not is to be seen."""
NAMED = 100
"""Ways that were not traced of which the answer says why, the nearest to the limit first."""
LIKELY = ("--checkpoint full", "--optimizer-impl fused")
"""Changes that are traced beside the job as given, whatever comes of it, so that no process waits for it."""

Way = tuple[Combination, PredictedStep]
"""A way to run the job, and what it should come to."""


def search_here(
    spec: JobSpec,
    profile: GpuProfile,
    search: Search,
    *,
    timeout: float,
    folder: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Recommendation:
    """Find the best way to run a job.

    Args:
        spec: The job as given.
        profile: The device.
        search: How to search, and for what.
        timeout: Seconds for one trace.
        folder: Where traces are found and kept; None: nowhere.
        progress: Told what happens now.

    Raises:
        UsageError: Ranks and batch do not go together.
        EstimateError: The job as given cannot be traced, nor any layout of it.
    """
    workers = Workers(profile, search.limits, processes=search.processes, timeout=timeout, progress=progress)
    return _Searching(spec, profile, search, workers, folder).answer()


class _Searching:
    """One job on the way to an answer."""

    def __init__(
        self, spec: JobSpec, profile: GpuProfile, search: Search, workers: Workers, folder: Path | None
    ) -> None:
        self._started = self._begun = self._end = time.perf_counter()
        self._profile, self._search, self._workers, self._folder = profile, search, workers, folder
        self._bases = bases(spec, search)
        self._given = self._bases[0]
        self._outcomes: dict[str, Evaluation] = {}
        self._skipped: list[Rejected] = []
        self._limit = limit_of(profile, search.limits.utilization) or inf
        self._work: Work = partial(work, folder=folder)

    def answer(self) -> Recommendation:
        """Everything in turn."""
        self._trace([*self._bases, *self._likely()], timed=False)
        self._begin()
        self._raise_if_hopeless()
        self._given = self._best_base()
        given = self._outcome(self._given)
        changes = self._changes(experts=given.experts)
        known = {change.text: change for change in changes}
        self._predictor = Predictor(self._given, known, self._profile.context_bytes)
        for outcome in self._outcomes.values():
            self._predictor.learn(outcome)
        mine = [each for each in changes if allowed(each, self._search)]
        ways = self._ways(mine, ())
        ended = self._explore(ways)
        if not self._fitting():
            self._look_further(changes)
            ended = self._see_smallest(ways)
        singles = self._singles(changes)
        self._round_off(singles)
        self._skip(ways)
        return compose_answer(
            SearchOutcome(
                given=self._given,
                profile=self._profile,
                search=self._search,
                outcomes=tuple(self._outcomes.values()),
                singles=tuple(singles),
                skipped=tuple(self._skipped),
                considered=len(ways),
                ended=ended,
                seconds=time.perf_counter() - self._started,
                batch_statistics=given.batch_statistics,
            )
        )

    # The job as given.

    def _likely(self) -> Iterator[Candidate]:
        if len(self._bases) == 1:
            for change in self._changes():
                if change.text in LIKELY:
                    yield self._alone(change)

    def _changes(self, *, experts: bool = False) -> tuple[JobChange, ...]:
        """Return the changes to try, without a precision that the device only emulates."""
        found = changes_for(self._given.spec, self._search, experts=experts)
        emulated = ("bf16", "bf16-mixed") if "bfloat16" in self._profile.lacks else ()
        return tuple(each for each in found if dict(each.fields).get("precision") not in emulated)

    def _begin(self) -> None:
        """Let the time count from the start, but leave half of it."""
        budget = self._search.budget_seconds
        self._begun = time.perf_counter()
        self._end = max(self._started + budget, self._begun + budget / 2)

    def _raise_if_hopeless(self) -> None:
        """A job that no layout can trace is the user's to put right; nothing of it is searched."""
        found = [self._outcome(each) for each in self._bases]
        if all(each.evaluated is None for each in found):
            raise found[0].error or EstimateError(found[0].reason)

    def _best_base(self) -> Candidate:
        """Of the layouts the fastest that fits, else the smallest."""
        known = [each.evaluated for each in map(self._outcome, self._bases) if each.evaluated is not None]
        fitting = [each for each in known if each.fits]
        if fitting:
            return max(fitting, key=lambda each: each.samples_per_second).candidate
        return min(known, key=lambda each: each.device_bytes).candidate

    # Ways to run it, and what they should come to.

    def _ways(self, changes: Sequence[JobChange], more: tuple[Group, ...]) -> list[Combination]:
        """Every way that changes make, if no more had to be allowed than is named."""
        return [
            each
            for each in combine(self._given, changes, self._search)
            if set(self._wanting(each.candidate)) <= set(more) and is_kept(each.candidate, self._given, self._search)
        ]

    def _wanting(self, candidate: Candidate) -> tuple[Group, ...]:
        statistics = self._outcome(self._given).batch_statistics
        return wanting(candidate, self._given, self._search, batch_statistics=statistics)

    def _hopeful(self, ways: Iterable[Combination]) -> list[Way]:
        """Return what was not traced and should fit, the cheapest first; of each set of changes one split of the batch.

        That split's trace says where the others stand.
        """
        found = [each for each in self._predicted(ways) if self._over(each[1]) <= (SLACK - 1) * self._limit]
        found.sort(key=lambda each: (self._cost(each[1]), len(each[0].changes), each[1].device_bytes))
        return _once(found)

    def _predicted(self, ways: Iterable[Combination]) -> Iterator[Way]:
        for each in ways:
            if _key(each.candidate) not in self._outcomes and self._predictor.can_be(each):
                yield each, self._predictor.predict(each)

    def _over(self, predicted: PredictedStep) -> float:
        """Bytes above the limit, as much below the device as the interval of the job as given needs."""
        given = self._evaluated(self._given)
        margin = 1.0 if self._search.limits.utilization else given.high_bytes / given.device_bytes
        return predicted.device_bytes * margin - self._limit

    def _cost(self, predicted: PredictedStep) -> float:
        share = predicted.device_bytes / (self._profile.usable_bytes or predicted.device_bytes or 1)
        return self._search.alpha * share + self._search.beta * predicted.step_seconds

    def _cost_of(self, evaluated: Evaluated) -> float:
        return self._cost(PredictedStep(device_bytes=evaluated.device_bytes, step_seconds=evaluated.time.total))

    # The search.

    def _explore(self, ways: Sequence[Combination]) -> Literal["complete", "budget"]:
        """Trace what should fit, the best first, until enough fit and nothing that is left should be better."""
        while hopeful := self._hopeful(ways):
            if self._is_settled(hopeful[0][1]):
                break
            if not self._trace(self._next(hopeful), share=SEARCHED):
                return "budget"
        return "complete"

    def _next(self, hopeful: Sequence[Way]) -> list[Candidate]:
        """The best, as many as there are processes.

        Until something fits, the last of them is the smallest instead: what is expected may be wrong of all the best.
        """
        chosen = [each.candidate for each, _ in hopeful[: self._workers.processes]]
        if len(chosen) > 1 and not self._fitting():
            chosen[-1] = min(hopeful, key=lambda each: each[1].device_bytes)[0].candidate
        return chosen

    def _is_settled(self, best_left: PredictedStep) -> bool:
        """Is enough known, and nothing better to be expected?"""
        fitting = [self._cost_of(each) for each in self._fitting()]
        return len(fitting) >= ENOUGH and min(fitting) <= self._cost(best_left)

    def _fitting(self) -> list[Evaluated]:
        """Return the evaluated candidates that fit and may be recommended."""
        found = [each.evaluated for each in self._outcomes.values() if each.evaluated is not None]
        return [each for each in found if each.fits and self._may_win(each.candidate)]

    def _may_win(self, candidate: Candidate) -> bool:
        same = candidate.global_batch == self._given.global_batch
        return same and not self._wanting(candidate) and is_kept(candidate, self._given, self._search)

    def _look_further(self, changes: Sequence[JobChange]) -> None:
        """Find what would fit if one more thing were allowed; two, where one does not do."""
        ways: dict[tuple[Group, ...], list[Combination]] = {}
        for each in combine(self._given, changes, self._search):
            if is_kept(each.candidate, self._given, self._search):
                ways.setdefault(self._wanting(each.candidate), []).append(each)
        for count in (1, 2):
            waiting = {groups: found for groups, found in ways.items() if len(groups) == count}
            while waiting:
                # Of each the fastest that should fit; what fits is an answer, and asks for no other of its kind.
                waiting = {groups: found for groups, found in waiting.items() if not self._fits_with(groups)}
                best = [hopeful[0][0].candidate for found in waiting.values() if (hopeful := self._hopeful(found))]
                if not self._trace(best, share=SEARCHED):
                    break
            if any(self._fits_with(groups) for groups in ways if len(groups) == count):
                return

    def _fits_with(self, groups: tuple[Group, ...]) -> bool:
        return any(
            each.evaluated is not None and each.evaluated.fits and self._wanting(each.candidate) == groups
            for each in self._outcomes.values()
        )

    def _see_smallest(self, ways: Sequence[Combination]) -> Literal["complete", "budget"]:
        """Trace the smallest ways that are allowed: if they do not fit, none does; if one does, look again."""
        smallest = sorted(self._predicted(ways), key=lambda each: each[1].device_bytes)
        if smallest and not self._trace((each.candidate for each, _ in _once(smallest)[:SMALLEST]), share=SEARCHED):
            return "budget"
        return self._explore(ways)

    # What makes the answer whole.

    def _singles(self, changes: Sequence[JobChange]) -> list[Candidate]:
        """Every change alone, and the split of the batch; of the layouts those that leave layers and samples whole."""
        plain = [self._alone(each) for each in changes if _is_plain(each.made(self._given.spec))]
        return [*self._split_alone(), *(each for each in plain if not excluded(each.spec))]

    def _alone(self, change: JobChange) -> Candidate:
        """A change with the split that comes nearest to the job's own at the same global batch."""
        made, batch = with_changes(self._given, (change,)), self._given.spec.batch_size
        if not made_of_whole_batches(made, self._given.global_batch):
            return made
        options = splits(self._given.global_batch, shares(made.spec.parallel))
        return with_split(made, self._given, next(each for each in options if each.micro_batch <= batch))

    def _split_alone(self) -> list[Candidate]:
        """The largest smaller micro-batch, at the same global batch, with which the job should fit."""
        found = [each for each in combine(self._given, (), self._search) if "split" not in self._search.keep]
        smaller = [each for each in found if each.candidate.spec.batch_size < self._given.spec.batch_size]
        fitting = [each for each in smaller if self._over(self._predictor.predict(each)) <= 0]
        return [each.candidate for each in (fitting[:1] or smaller[-1:])]

    def _round_off(self, singles: Sequence[Candidate]) -> None:
        """A checkpoint plan in the place of the best full checkpointing, and single changes for the table.

        They take at most as long again as the search has taken, but for the plan, which may take what is left.
        """
        now = time.perf_counter()
        waiting = [each for each in singles if _key(each) not in self._outcomes]
        waiting.sort(key=lambda each: (bool(self._wanting(each)), each.groups == ("split",)))
        planning = self._planning()
        until = min(self._end, now + max(now - self._begun, (self._end - self._begun) / 4))
        self._trace([*planning.candidates, *waiting], planning.work, begin_until=until)

    def _planning(self) -> Planning:
        best, file = min(self._fitting(), key=self._cost_of, default=None), self._search.plan_file
        # No plan is faster than none at all.
        if best is None or file is None or not can_be_planned(best):
            return Planning(folder=self._folder)
        spent = (time.perf_counter() - self._started) / max(1, len(self._outcomes)) * self._workers.processes
        if time.perf_counter() + TRACES * spent > self._end:
            reason = "a checkpoint plan takes longer than is left of --search-budget"
            self._skipped.append(Rejected(candidate=in_its_place(best), reason=reason, traced=False))
            return Planning(folder=self._folder)
        budget = budget_for(best, self._profile, self._search.limits)
        return Planning(candidates=(in_its_place(best, file),), file=str(file), budget=budget, folder=self._folder)

    def _skip(self, ways: Iterable[Combination]) -> None:
        """Remember what was not traced because it should not fit."""
        found = [(self._over(predicted), predicted, each.candidate) for each, predicted in self._predicted(ways)]
        large = sorted((each for each in found if each[0] > (SLACK - 1) * self._limit), key=lambda each: each[0])
        for beyond, predicted, candidate in large[:NAMED]:
            limit = int(self._limit)
            words = over(predicted.device_bytes, int(beyond) + limit, limit)
            reason = f"about {words} the {format_bytes(limit)} for the step, by the traces nearest to it"
            self._skipped.append(Rejected(candidate=candidate, reason=reason, traced=False))

    # Traces.

    def _outcome(self, candidate: Candidate) -> Evaluation:
        return self._outcomes[_key(candidate)]

    def _evaluated(self, candidate: Candidate) -> Evaluated:
        found = self._outcome(candidate).evaluated
        assert found is not None  # noqa: S101 - asked of what was traced with success alone.
        return found

    def _trace(
        self,
        candidates: Iterable[Candidate],
        function: Work | None = None,
        *,
        timed: bool = True,
        share: float = 1.0,
        begin_until: float = inf,
    ) -> bool:
        """Trace what was not traced yet, and learn from it.

        Args:
            candidates: The most wanted first.
            function: Evaluates one of them in a worker; None: as it is.
            timed: Does the time count? It does not for the job as given.
            share: Of the time, after which none begins; what runs may take the rest of it.
            begin_until: When none begins any more, whatever is left.

        Returns:
            Whether anything came of it.
        """
        fresh = [each for key, each in {_key(each): each for each in candidates}.items() if key not in self._outcomes]
        latest = min(begin_until, self._begun + share * (self._end - self._begun)) if timed else inf
        until, found = self._end if timed else inf, False
        for outcome in self._workers.run(fresh, function or self._work, begin_until=latest, until=until):
            self._outcomes[_key(outcome.candidate)] = outcome
            found = True
            if timed:
                self._predictor.learn(outcome)
        return found


def _once(ways: Iterable[Way]) -> list[Way]:
    """The first of each set of changes."""
    found: dict[tuple[JobChange, ...], Way] = {}
    for each in ways:
        found.setdefault(each[0].changes, each)
    return list(found.values())


def _is_plain(spec: JobSpec) -> bool:
    parallel = spec.parallel
    return parallel.tensor == parallel.context == parallel.pipeline == parallel.expert == 1


def _key(candidate: Candidate) -> str:
    return repr(candidate.spec)
