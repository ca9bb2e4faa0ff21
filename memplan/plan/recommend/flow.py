"""The search: the job as given, then what should be best of all ways to run it, until it is proved that none is better.

given ──► all ways in predicted order ──► traced, best first ──┬─► something fits: what might still be better
              ▲                              │ every trace      └─► nothing does: what more would have to be allowed
              └──────────────────────────────┘ teaches              ──► a checkpoint plan, single changes
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from pathlib import Path

from memplan.errors import EstimateError
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.plan.batch.headroom import limit_of
from memplan.plan.batch.split import splits
from memplan.plan.recommend.answer import SearchOutcome, compose_answer
from memplan.plan.recommend.bounds import Bounds
from memplan.plan.recommend.certificate import Certificate, key_of
from memplan.plan.recommend.changes import JobChange
from memplan.plan.recommend.checkpoint_plan import TRACES, Planning, budget_for, can_be_planned, in_its_place
from memplan.plan.recommend.evaluate import Evaluation, work
from memplan.plan.recommend.exclusions import excluded
from memplan.plan.recommend.predict import PredictedStep, Predictor
from memplan.plan.recommend.records import (
    NO_BETTER,
    NOT_TRACED,
    Candidate,
    Evaluated,
    Group,
    Recommendation,
    Rejected,
    Search,
    shares,
)
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
from memplan.plan.recommend.usual import usual_rank
from memplan.plan.recommend.workers import Work, Workers

SLACK = 1.03
"""Predicted sizes above the limit by so much are traced all the same."""
SEARCHED = 0.8
"""Share of the budget after which the search leaves the rest to the single changes."""
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
    started: float | None = None,
) -> Recommendation:
    """Find the best way to run a job.

    Args:
        spec: The job as given.
        profile: The device.
        search: How to search, and for what.
        timeout: Seconds for one trace.
        folder: Where traces are found and kept; None: nowhere.
        progress: Told what happens now.
        started: Time of ``time.perf_counter`` from which the budget counts; None: now.

    Raises:
        UsageError: Ranks and batch do not go together.
        EstimateError: The job as given cannot be traced, nor any layout of it.
    """
    workers = Workers(profile, search.limits, processes=search.processes, timeout=timeout)
    began = time.perf_counter() if started is None else started
    searching = _Searching(spec, profile, search, workers, folder=folder, progress=progress, started=began)
    return searching.answer()


class _Searching:
    """One job on the way to an answer."""

    def __init__(
        self,
        spec: JobSpec,
        profile: GpuProfile,
        search: Search,
        workers: Workers,
        *,
        folder: Path | None,
        progress: Callable[[str], None],
        started: float,
    ) -> None:
        self._started, self._end = started, started + search.budget_seconds
        self._profile, self._search, self._workers, self._folder = profile, search, workers, folder
        self._progress = progress
        self._bases = bases(spec, search)
        self._given = self._bases[0]
        self._outcomes: dict[str, Evaluation] = {}
        self._limit = limit_of(profile, search.limits.utilization) or inf
        self._work: Work = partial(work, folder=folder)
        self._bounds = Bounds(profile)
        self._certificate = Certificate(
            self._bounds,
            self._outcomes,
            limit_bytes=self._limit,
            limit_seconds=search.limits.step_seconds,
            cost=self._cost,
        )
        self._predictor: Predictor | None = None
        self._changes: tuple[JobChange, ...] = ()
        self._ways: tuple[Combination, ...] = ()
        self._singles: tuple[Candidate, ...] = ()
        self._unproved: list[Combination] = []
        self._was_planned = ""

    def answer(self) -> Recommendation:
        """Everything in turn; what an interrupt leaves is an answer, too, once the job as given was traced."""
        interrupted = False
        try:
            self._trace([*self._bases, *self._likely()], needed=len(self._bases))
            self._prepare()
            self._search_ways()
        except KeyboardInterrupt:
            if self._predictor is None and not self._bases_are_known():
                raise
            interrupted = True
        if self._predictor is None:
            self._prepare()
        best = min(self._fitting(), key=self._cost_of, default=None)
        costs = [self._cost_of(each) for each in self._fitting()]
        return compose_answer(
            SearchOutcome(
                given=self._given,
                profile=self._profile,
                search=self._search,
                outcomes=tuple(self._outcomes.values()),
                singles=self._singles,
                skipped=tuple(self._skipped()),
                proof=self._certificate.proof([each.candidate for each in self._ways], best, costs),
                interrupted=interrupted,
                seconds=time.perf_counter() - self._started,
                batch_statistics=self._outcome(self._given).batch_statistics,
            )
        )

    # The job as given.

    def _likely(self) -> Iterator[Candidate]:
        if len(self._bases) == 1:
            for change in self._changes_of_given():
                if change.text in LIKELY:
                    yield self._alone(change)

    def _changes_of_given(self, *, experts: bool = False) -> tuple[JobChange, ...]:
        """Return the changes to try; of 16 bits bfloat16, or float16 where that is emulated."""
        found = changes_for(self._given.spec, self._search, experts=experts)
        other = ("bf16", "bf16-mixed") if "bfloat16" in self._profile.lacks else ("fp16", "fp16-mixed")
        return tuple(each for each in found if dict(each.fields).get("precision") not in other)

    def _bases_are_known(self) -> bool:
        return all(key_of(each) in self._outcomes for each in self._bases)

    def _prepare(self) -> None:
        """Choose the job that others are compared to, and list all ways to run it."""
        self._raise_if_hopeless()
        self._given = self._best_base()
        given = self._outcome(self._given)
        self._changes = self._changes_of_given(experts=given.experts)
        known = {change.text: change for change in self._changes}
        self._predictor = Predictor(self._given, known, self._profile.context_bytes)
        for outcome in self._outcomes.values():
            self._predictor.learn(outcome)
        mine = [each for each in self._changes if allowed(each, self._search)]
        self._ways = tuple(each for each in combine(self._given, mine, self._search) if self._may_win(each.candidate))
        self._unproved = list(self._ways)

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

    def _may_win(self, candidate: Candidate) -> bool:
        same = candidate.global_batch == self._given.global_batch
        return same and not self._wanting(candidate) and is_kept(candidate, self._given, self._search)

    def _wanting(self, candidate: Candidate) -> tuple[Group, ...]:
        statistics = self._outcome(self._given).batch_statistics
        return wanting(candidate, self._given, self._search, batch_statistics=statistics)

    def _predicted(self, ways: Iterable[Combination]) -> list[Way]:
        assert self._predictor is not None  # noqa: S101 - ways are made after it.
        return [(each, self._predictor.predict(each)) for each in ways if key_of(each.candidate) not in self._outcomes]

    def _should_fit(self, predicted: PredictedStep) -> bool:
        return self._over(predicted) <= (SLACK - 1) * self._limit

    def _over(self, predicted: PredictedStep) -> float:
        """Bytes above the limit, as much below the device as the interval of the job as given needs."""
        given = self._evaluated(self._given)
        margin = 1.0 if self._search.limits.utilization else given.high_bytes / given.device_bytes
        return predicted.device_bytes * margin - self._limit

    def _cost(self, device_bytes: float, seconds: float) -> float:
        share = device_bytes / (self._profile.usable_bytes or device_bytes or 1)
        return self._search.alpha * share + self._search.beta * seconds / self._evaluated(self._given).time.total

    def _cost_of(self, evaluated: Evaluated) -> float:
        return self._cost(evaluated.device_bytes, evaluated.time.total)

    def _expected(self, way: Way) -> tuple[float, int, int]:
        combination, predicted = way
        cost = self._cost(predicted.device_bytes, predicted.step_seconds)
        return cost, len(combination.changes), predicted.device_bytes

    # The search.

    def _search_ways(self) -> None:
        self._explore()
        if not self._fitting():
            self._look_further()
        self._prove()
        self._singles = tuple(self._single_changes())
        self._round_off()

    def _open(self) -> list[Combination]:
        """Return the ways that may still be better than what was found, or fit where nothing does."""
        lowest = self._lowest()
        ways = self._unproved if self._bounds.holds else self._ways
        self._unproved = [each for each in ways if not self._certificate.is_settled(each.candidate, lowest)]
        return self._unproved

    def _lowest(self) -> float:
        return min(map(self._cost_of, self._fitting()), default=inf)

    def _explore(self) -> None:
        """Trace what should fit: until something does, what people try first; then what should be better than it."""
        while True:
            hopeful = [each for each in self._predicted(self._open()) if self._should_fit(each[1])]
            hopeful = _once(sorted(hopeful, key=self._expected))
            if self._fitting():
                hopeful = [each for each in hopeful if self._expected(each)[0] < self._lowest()]
            else:
                hopeful.sort(key=lambda each: (usual_rank(each[0].candidate), self._expected(each)))
            if not self._trace(_some(hopeful, self._workers.processes), share=SEARCHED):
                return

    def _prove(self) -> None:
        """Trace what might be better though it should not be, until nothing is left that might."""
        while ways := self._predicted(self._open()):
            # A small batch that does not fit speaks for all larger ones, a large one that is slow for all smaller ones.
            ways.sort(key=lambda each: each[0].candidate.spec.batch_size * (-1 if self._should_fit(each[1]) else 1))
            chosen = _once(ways)
            chosen.sort(key=lambda each: self._certificate.least_cost(each[0].candidate))
            if not self._trace(_some(chosen, self._workers.processes), share=SEARCHED):
                return
            self._explore()

    def _fitting(self) -> list[Evaluated]:
        """Return the evaluated candidates that fit and may be recommended."""
        found = [each.evaluated for each in self._outcomes.values() if each.evaluated is not None]
        return [each for each in found if each.fits and self._may_win(each.candidate)]

    def _look_further(self) -> None:
        """Find what would fit if one more thing were allowed; two, where one does not do."""
        ways: dict[tuple[Group, ...], list[Combination]] = {}
        for each in combine(self._given, self._changes, self._search):
            if is_kept(each.candidate, self._given, self._search):
                ways.setdefault(self._wanting(each.candidate), []).append(each)
        for count in (1, 2):
            waiting = {groups: found for groups, found in ways.items() if len(groups) == count}
            while waiting:
                # Of each the fastest that should fit; what fits is an answer, and asks for no other of its kind.
                waiting = {groups: found for groups, found in waiting.items() if not self._fits_with(groups)}
                best = [hopeful[0] for found in waiting.values() if (hopeful := self._hopeful(found))]
                if not self._trace(best, share=SEARCHED):
                    break
            if any(self._fits_with(groups) for groups in ways if len(groups) == count):
                return

    def _hopeful(self, ways: Iterable[Combination]) -> list[Candidate]:
        """Return what was not traced, may be and should fit, the cheapest first."""
        possible = [each for each in ways if not self._certificate.cannot_fit(each.candidate)]
        found = [each for each in self._predicted(possible) if self._should_fit(each[1])]
        return [each.candidate for each, _ in sorted(found, key=self._expected)]

    def _fits_with(self, groups: tuple[Group, ...]) -> bool:
        return any(
            each.evaluated is not None and each.evaluated.fits and self._wanting(each.candidate) == groups
            for each in self._outcomes.values()
        )

    # What makes the answer whole.

    def _single_changes(self) -> Iterator[Candidate]:
        """Every change alone, and the split of the batch; of the layouts those that leave layers and samples whole."""
        yield from self._split_alone()
        for change in self._changes:
            if _is_plain(change.made(self._given.spec)) and not excluded((alone := self._alone(change)).spec):
                yield alone

    def _alone(self, change: JobChange) -> Candidate:
        """A change with the split that comes nearest to the job's own at the same global batch."""
        made, batch = with_changes(self._given, (change,)), self._given.spec.batch_size
        if not made_of_whole_batches(made, self._given.global_batch):
            return made
        options = splits(self._given.global_batch, shares(made.spec.parallel))
        return with_split(made, self._given, next(each for each in options if each.micro_batch <= batch))

    def _split_alone(self) -> list[Candidate]:
        """The largest smaller micro-batch, at the same global batch, with which the job should fit."""
        assert self._predictor is not None  # noqa: S101 - it was made with the ways.
        found = [each for each in combine(self._given, (), self._search) if "split" not in self._search.keep]
        smaller = [each for each in found if each.candidate.spec.batch_size < self._given.spec.batch_size]
        fitting = [each for each in smaller if self._over(self._predictor.predict(each)) <= 0]
        return [each.candidate for each in (fitting[:1] or smaller[-1:])]

    def _round_off(self) -> None:
        """A checkpoint plan in the place of the best full checkpointing, and single changes for the table.

        They take at most as long again as the search has taken, but for the plan, which may take what is left.
        """
        now = time.perf_counter()
        waiting = [each for each in self._singles if key_of(each) not in self._outcomes]
        waiting.sort(key=lambda each: (bool(self._wanting(each)), each.groups == ("split",)))
        planning = self._planning()
        until = now + max(now - self._started, self._search.budget_seconds / 4)
        self._trace([*planning.candidates, *waiting], planning.work, begin_until=until)

    def _planning(self) -> Planning:
        best, file = min(self._fitting(), key=self._cost_of, default=None), self._search.plan_file
        # No plan is faster than none at all.
        if best is None or file is None or not can_be_planned(best):
            return Planning(folder=self._folder)
        spent = (time.perf_counter() - self._started) / max(1, len(self._outcomes)) * self._workers.processes
        if time.perf_counter() + TRACES * spent > self._end or self._traces_left() < TRACES:
            self._was_planned = "a checkpoint plan takes longer than is left of --time-limit"
            return Planning(folder=self._folder)
        budget = budget_for(best, self._profile, self._search.limits)
        return Planning(candidates=(in_its_place(best, file),), file=str(file), budget=budget, folder=self._folder)

    def _skipped(self) -> Iterator[Rejected]:
        """Say of what was not traced why not; what should come nearest to the limit first."""
        best = min(self._fitting(), key=self._cost_of, default=None)
        if self._was_planned and best is not None:
            yield Rejected(candidate=in_its_place(best), reason=self._was_planned, traced=False)
        for way, _ in sorted(self._predicted(self._ways), key=lambda each: abs(self._over(each[1])))[:NAMED]:
            reason = self._certificate.reason(way.candidate)
            if not reason and self._certificate.is_settled(way.candidate, self._lowest()):
                reason = NO_BETTER
            yield Rejected(candidate=way.candidate, reason=reason or NOT_TRACED, traced=False)

    # Traces.

    def _outcome(self, candidate: Candidate) -> Evaluation:
        return self._outcomes[key_of(candidate)]

    def _evaluated(self, candidate: Candidate) -> Evaluated:
        found = self._outcome(candidate).evaluated
        assert found is not None  # noqa: S101 - asked of what was traced with success alone.
        return found

    def _traces_left(self, share: float = 1.0) -> int:
        most = self._search.budget_traces
        return sys.maxsize if most is None else max(0, int(share * most) - len(self._outcomes))

    def _trace(
        self,
        candidates: Iterable[Candidate],
        function: Work | None = None,
        *,
        needed: int = 0,
        share: float = 1.0,
        begin_until: float = inf,
    ) -> bool:
        """Trace what was not traced yet, and learn from it.

        Args:
            candidates: The most wanted first.
            function: Evaluates one of them in a worker; None: as it is.
            needed: So many of the first are traced however long it takes.
            share: Of the budget, after which none begins; what runs may take the rest of it.
            begin_until: When none begins any more, whatever is left.

        Returns:
            Whether anything came of it.
        """
        fresh = [each for key, each in {key_of(each): each for each in candidates}.items() if key not in self._outcomes]
        fresh = fresh[: max(needed, self._traces_left(share))]
        latest = min(begin_until, self._started + share * self._search.budget_seconds)
        found = False
        for outcome in self._workers.run(
            fresh, function or self._work, needed=needed, begin_until=latest, until=self._end
        ):
            self._outcomes[key_of(outcome.candidate)] = outcome
            found = True
            self._bounds.learn(outcome)
            if self._predictor is not None:
                self._predictor.learn(outcome)
            self._progress(self._words())
        return found

    def _words(self) -> str:
        """``12 of 409 proved · best 7.9 samples/s · 31 s left``."""
        if not self._ways:
            return f"{len(self._outcomes)} traced"
        proved = f"{len(self._ways) - len(self._open())} of {len(self._ways)} proved"
        best = max((each.samples_per_second for each in self._fitting()), default=None)
        said = "nothing fits yet" if best is None else f"best {best:.3g} samples/s"
        left = max(0.0, self._end - time.perf_counter())
        return " · ".join([proved, said, *([f"{left:.0f} s left"] if left < inf else [])])


def _some(ways: Sequence[Way], count: int) -> list[Candidate]:
    return [each.candidate for each, _ in ways[:count]]


def _once(ways: Iterable[Way]) -> list[Way]:
    """The first of each set of changes."""
    found: dict[tuple[JobChange, ...], Way] = {}
    for each in ways:
        found.setdefault(each[0].changes, each)
    return list(found.values())


def _is_plain(spec: JobSpec) -> bool:
    parallel = spec.parallel
    return parallel.tensor == parallel.context == parallel.pipeline == parallel.expert == 1
