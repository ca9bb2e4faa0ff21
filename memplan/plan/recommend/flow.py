"""The search: the job as given, then what should be best of all ways to run it, until it is proved that none is better.

given ──► all ways in predicted order ──► traced, best first ──┬─► something fits: what might still be better
              ▲                              │ every trace      └─► nothing does: what more would have to be allowed
              └──────────────────────────────┘ teaches              ──► a checkpoint plan, single changes
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.plan.recommend.answer import SearchOutcome, answer_without_traces, compose_answer
from memplan.plan.recommend.bases import bases, usual_rank
from memplan.plan.recommend.bounds import Bounds
from memplan.plan.recommend.certificate import Certificate
from memplan.plan.recommend.checkpoint_plan import TRACES, Planning, budget_for, can_be_planned, in_its_place
from memplan.plan.recommend.evaluate import work
from memplan.plan.recommend.probes import Probes, plainness
from memplan.plan.recommend.records import (
    NO_BETTER,
    NOT_TRACED,
    Candidate,
    Group,
    Recommendation,
    Rejected,
    Search,
)
from memplan.plan.recommend.space import Combination
from memplan.plan.recommend.traces import Traces
from memplan.plan.recommend.ways import Way, Ways
from memplan.plan.recommend.workers import Workers

if TYPE_CHECKING:
    from memplan.plan.recommend.changes import JobChange

SEARCHED = 0.8
"""Share of the budget after which the single changes come first."""
NAMED = 100
"""Ways that were not traced of which the answer says why, the nearest to the limit first."""


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
        self._profile, self._search, self._folder = profile, search, folder
        self._bases = bases(spec, search)
        self._bounds = Bounds(profile)
        job = partial(work, folder=folder)
        self._traces = Traces(workers, job, search, self._bounds, started=started, tell=lambda: progress(self._words()))
        self._workers = workers
        self._ways = Ways(self._bases, profile, search, self._traces)
        self._certificate = Certificate(
            self._bounds,
            self._traces.outcomes,
            limit_bytes=self._ways.limit,
            limit_seconds=search.limits.step_seconds,
            cost=self._ways.cost,
            needed=self._ways.needed,
        )
        self._singles: tuple[Candidate, ...] = ()
        self._unproved: list[Combination] = []
        self._share = SEARCHED
        self._was_planned = ""

    def answer(self) -> Recommendation:
        """Everything in turn; what an interrupt leaves is an answer, too, once the job as given was traced."""
        interrupted = False
        try:
            self._trace_bases()
            if any(map(self._traces.has, self._bases)):
                self._prepare()
                self._search_ways()
        except KeyboardInterrupt:
            if self._traces.predictor is None and not self._traces.has(self._bases[0]):
                raise
            interrupted = True
        finally:
            self._workers.abandon()
        if not any(map(self._traces.has, self._bases)):
            return self._nothing_traced()
        if self._traces.predictor is None:
            self._prepare()
        costs = [self._ways.cost_of(each) for each in self._ways.fitting()]
        ways = [each.candidate for each in self._ways.all]
        return compose_answer(
            SearchOutcome(
                given=self._ways.given,
                profile=self._profile,
                search=self._search,
                outcomes=(*self._traces.outcomes.values(), *self._traces.lost.values()),
                singles=self._singles,
                skipped=tuple(self._skipped()),
                proof=self._certificate.proof(ways, self._ways.best(), costs),
                untraced=None if costs else next((each[0].candidate for each in self._promising()), None),
                interrupted=interrupted,
                seconds=time.perf_counter() - self._traces.started,
                batch_statistics=self._traces.of(self._ways.given).batch_statistics,
            )
        )

    def _nothing_traced(self) -> Recommendation:
        """Say that the time was over before the job as given was traced."""
        search = self._search
        seconds = time.perf_counter() - self._traces.started
        ways = self._ways.count_unseen()
        return answer_without_traces(self._ways.given, self._profile, search, ways=ways, seconds=seconds)

    def _trace_bases(self) -> None:
        """Trace the job as given; of several layouts the one that shares most first, which may rule the others out."""
        first, *others = self._bases
        if not others:
            self._traces.meanwhile = tuple(self._ways.alone())
        self._traces.run([first, *self._ways.likely()])
        self._traces.run(each for each in others if not self._certificate.cannot_fit(each))

    def _prepare(self) -> None:
        self._ways.prepare()
        # What surely does not fit tells least.
        self._traces.meanwhile = tuple(sorted(self._ways.alone(), key=self._certificate.cannot_fit))
        self._unproved = list(self._ways.all)

    # The search.

    def _search_ways(self) -> None:
        self._explore()
        if not self._ways.fitting():
            self._look_further()
        self._prove()
        self._singles = tuple(self._ways.singles())
        self._round_off()
        # What that left of the budget.
        self._share = 1.0
        self._prove()

    def _open(self) -> list[Combination]:
        """Return the ways that may still be better than what was found, or fit where nothing does."""
        lowest = self._ways.lowest()
        ways = self._unproved if self._bounds.holds else self._ways.all
        self._unproved = [each for each in ways if not self._certificate.is_settled(each.candidate, lowest)]
        return self._unproved

    def _explore(self) -> None:
        """Trace what should fit: until something does, what people try first; then what should be better than it."""
        while self._run_first([each for each, _ in self._promising()]):
            pass

    def _promising(self) -> list[Way]:
        """Return what should fit and be better than what was found, in the order in which it is traced."""
        ways = self._ways
        hopeful = [each for each in ways.predicted(self._open()) if ways.should_fit(each[1])]
        hopeful = _once(sorted(hopeful, key=ways.expected))
        if ways.fitting():
            return [each for each in hopeful if ways.expected(each)[0] < ways.lowest()]
        return sorted(hopeful, key=lambda each: (usual_rank(each[0].candidate), ways.expected(each)))

    def _prove(self) -> None:
        """Trace what might be better though it should not be, until nothing is left that might."""
        ways = self._ways
        self._traces.run(ways.ends(), share=self._share)
        while found := ways.predicted(self._open()):
            # A small batch that does not fit speaks for all larger ones, a large one that is slow for all smaller ones.
            found.sort(key=lambda each: each[0].candidate.spec.batch_size * (-1 if ways.should_fit(each[1]) else 1))
            chosen = [each for each, _ in _once(found)]
            chosen.sort(key=lambda each: (self._certificate.least_cost(each.candidate), plainness(each)))
            if not self._run_first(self._probes(chosen)):
                return
            self._explore()

    def _probes(self, ways: Sequence[Combination]) -> Sequence[Combination]:
        """What to trace to prove these; where nothing fits, they themselves."""
        lowest = self._ways.lowest()
        if lowest == inf:
            return ways
        probes = Probes(
            self._ways.all,
            is_traced=lambda each: self._traces.has(each.candidate),
            is_slower=lambda each: self._ways.cost_so_far(each) >= lowest,
        )
        return probes.of(ways)

    def _run_first(self, ways: Sequence[Combination]) -> bool:
        """Trace as many as there are processes; has anything come of it?"""
        candidates, count = [each.candidate for each in ways], self._traces.at_once
        return self._traces.run(candidates[:count], then=candidates[count:], share=self._share)

    def _look_further(self) -> None:
        """Find what would fit if one more thing were allowed; two, where one does not do."""
        ways = self._ways.further()
        for count in (1, 2):
            waiting = {groups: found for groups, found in ways.items() if len(groups) == count}
            while waiting:
                # Of each the fastest that should fit; what fits is an answer, and asks for no other of its kind.
                waiting = {groups: found for groups, found in waiting.items() if not self._fits_with(groups)}
                best = [hopeful[0] for found in waiting.values() if (hopeful := self._hopeful(found))]
                if not self._traces.run(best, share=self._share):
                    break
            if any(self._fits_with(groups) for groups in ways if len(groups) == count):
                return

    def _hopeful(self, ways: Iterable[Combination]) -> list[Candidate]:
        """Return what was not traced, may be and should fit, the cheapest first."""
        possible = [each for each in ways if not self._certificate.cannot_fit(each.candidate)]
        found = [each for each in self._ways.predicted(possible) if self._ways.should_fit(each[1])]
        return [each.candidate for each, _ in sorted(found, key=self._ways.expected)]

    def _fits_with(self, groups: tuple[Group, ...]) -> bool:
        return any(
            each.evaluated is not None and each.evaluated.fits and self._ways.wanting(each.candidate) == groups
            for each in self._traces.outcomes.values()
        )

    # What makes the answer whole.

    def _round_off(self) -> None:
        """A checkpoint plan in the place of the best full checkpointing, and single changes for the table.

        They take at most as long again as the search has taken, but for the plan, which may take what is left.
        """
        now = time.perf_counter()
        waiting = [each for each in self._singles if not self._traces.has(each)]
        waiting.sort(key=lambda each: (bool(self._ways.wanting(each)), each.groups == ("split",)))
        planning = self._planning()
        until = now + max(now - self._traces.started, self._search.budget_seconds / 4)
        self._traces.run([*planning.candidates, *waiting], planning.work, begin_until=until)

    def _planning(self) -> Planning:
        best, file = self._ways.best(), self._search.plan_file
        # No plan is faster than none at all.
        if best is None or file is None or not can_be_planned(best):
            return Planning(folder=self._folder)
        takes = TRACES * self._traces.seconds_of_one()
        if time.perf_counter() + takes > self._traces.end or self._traces.left() < TRACES:
            self._was_planned = "a checkpoint plan takes longer than is left of --time-limit"
            return Planning(folder=self._folder)
        budget = budget_for(best, self._profile, self._search.limits)
        return Planning(candidates=(in_its_place(best, file),), file=str(file), budget=budget, folder=self._folder)

    def _skipped(self) -> Iterator[Rejected]:
        """Say of what was not traced why not; what should come nearest to the limit first."""
        ways, best = self._ways, self._ways.best()
        if self._was_planned and best is not None:
            yield Rejected(candidate=in_its_place(best), reason=self._was_planned, traced=False)
        for way, _ in sorted(ways.predicted(ways.all), key=lambda each: abs(ways.over(each[1])))[:NAMED]:
            reason = self._certificate.reason(way.candidate)
            if not reason and self._certificate.is_settled(way.candidate, ways.lowest()):
                reason = NO_BETTER
            yield Rejected(candidate=way.candidate, reason=reason or NOT_TRACED, traced=False)

    def _words(self) -> str:
        """``12 of 409 proved · best 7.9 samples/s · 31 s left``."""
        count = len(self._ways.all)
        if not count:
            return f"{len(self._traces.outcomes)} traced"
        proved = f"{count - len(self._open())} of {count} proved"
        best = max((each.samples_per_second for each in self._ways.fitting()), default=None)
        said = "nothing fits yet" if best is None else f"best {best:.3g} samples/s"
        left = max(0.0, self._traces.end - time.perf_counter())
        return " · ".join([proved, said, *([f"{left:.0f} s left"] if left < inf else [])])


def _once(ways: Iterable[Way]) -> list[Way]:
    """The first of each set of changes."""
    found: dict[tuple[JobChange, ...], Way] = {}
    for each in ways:
        found.setdefault(each[0].changes, each)
    return list(found.values())
