"""What a search has traced, what is left of its budget, and who learns from each trace."""

import sys
import time
from collections.abc import Callable, Iterable
from itertools import chain
from math import inf
from typing import TYPE_CHECKING

from memplan.plan.recommend.bounds import Bounds
from memplan.plan.recommend.certificate import key_of
from memplan.plan.recommend.evaluate import Evaluation
from memplan.plan.recommend.records import Candidate, Evaluated, Search
from memplan.plan.recommend.workers import Work, Workers

if TYPE_CHECKING:
    from memplan.plan.recommend.predict import Predictor


class Traces:
    """Traces candidates within the budget.

    Args:
        workers: Do it.
        work: Evaluates a candidate in one of them.
        search: Has the budget.
        bounds: Learn from every trace.
        started: Time of ``time.perf_counter`` from which the budget counts.
        tell: Called after each trace.
    """

    def __init__(
        self, workers: Workers, work: Work, search: Search, bounds: Bounds, *, started: float, tell: Callable[[], None]
    ) -> None:
        self.outcomes: dict[str, Evaluation] = {}
        """By ``key_of``."""
        self.lost: dict[str, Evaluation] = {}
        """The same of what came to no end, which proves nothing."""
        self.predictor: Predictor | None = None
        """Learns, too, once it is there."""
        self.meanwhile: tuple[Candidate, ...] = ()
        """Wanted in the end, and traced before by processes that would wait; not where traces are counted."""
        self.started, self.end = started, started + search.budget_seconds
        self.at_once = workers.processes
        self._workers, self._work, self._search, self._bounds = workers, work, search, bounds
        self._tell = tell

    def of(self, candidate: Candidate) -> Evaluation:
        """Return what came of a candidate that was traced."""
        key = key_of(candidate)
        return self.lost[key] if key in self.lost else self.outcomes[key]

    def evaluated(self, candidate: Candidate) -> Evaluated:
        """Return the figures of a candidate that was traced with success."""
        found = self.of(candidate).evaluated
        assert found is not None  # noqa: S101 - asked of what was traced with success alone.
        return found

    def has(self, candidate: Candidate) -> bool:
        """Return whether a candidate was traced, with success or not."""
        key = key_of(candidate)
        return key in self.outcomes or key in self.lost

    def left(self, share: float = 1.0) -> int:
        """Return how many traces a share of the budget still has."""
        most = self._search.budget_traces
        return sys.maxsize if most is None else max(0, int(share * most) - len(self.outcomes) - len(self.lost))

    def seconds_of_one(self) -> float:
        """Return the time that one has taken so far, on the average."""
        return (time.perf_counter() - self.started) / max(1, len(self.outcomes)) * self.at_once

    def run(
        self,
        candidates: Iterable[Candidate],
        function: Work | None = None,
        *,
        then: Iterable[Candidate] = (),
        share: float = 1.0,
        begin_until: float = inf,
    ) -> bool:
        """Trace what was not traced yet, and learn from it.

        Args:
            candidates: The most wanted first.
            function: Evaluates one of them in a worker; None: as it is.
            then: What would be next: where nothing else is left for processes that would wait.
            share: Of the budget, after which none begins; what runs may take the rest of it.
            begin_until: When none begins any more, whatever is left.

        Returns:
            Whether anything came of it.
        """
        fresh = [each for each in {key_of(each): each for each in candidates}.values() if not self.has(each)]
        fresh = fresh[: self.left(share)]
        latest = min(begin_until, self.started + share * self._search.budget_seconds)
        waiting = chain(self.meanwhile, then) if self._search.budget_traces is None else ()
        meanwhile = (each for each in waiting if not self.has(each))
        found = False
        for outcome in self._workers.run(
            fresh, function or self._work, meanwhile=meanwhile, begin_until=latest, until=self.end
        ):
            found = True
            if outcome.is_lost:
                self.lost[key_of(outcome.candidate)] = outcome
                continue
            self.outcomes[key_of(outcome.candidate)] = outcome
            self._bounds.learn(outcome)
            if self.predictor is not None:
                self.predictor.learn(outcome)
            self._tell()
        return found
