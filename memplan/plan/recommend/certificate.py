"""What is proved of all ways at once: which of them can neither fit nor be better, traced or not."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import inf

from memplan.job.spec import JobSpec
from memplan.measure.over import over
from memplan.plan.recommend.bounds import Bounds
from memplan.plan.recommend.evaluate import Evaluation
from memplan.plan.recommend.records import Candidate, Evaluated, RecommendProof
from memplan.units import Bytes, format_bytes

Cost = Callable[[float, float], float]
"""Device bytes and seconds of a step → what ways are ranked by."""
Needed = Callable[[JobSpec, int], int]
"""A job and its device bytes → bytes that must be within the limit."""


class Certificate:
    """Holds every way against what was traced."""

    def __init__(
        self,
        bounds: Bounds,
        outcomes: Mapping[str, Evaluation],
        *,
        limit_bytes: float,
        limit_seconds: float | None,
        cost: Cost,
        needed: Needed,
    ) -> None:
        """Look at what is traced as it comes."""
        self._needed = needed
        self._bounds, self._outcomes, self._cost = bounds, outcomes, cost
        self._limit_bytes, self._limit_seconds = limit_bytes, limit_seconds or inf

    def least_cost(self, candidate: Candidate) -> float:
        """What a way costs at least."""
        return self._cost(self._bounds.least_bytes(candidate), self._bounds.least_seconds(candidate))

    def is_settled(self, candidate: Candidate, best_cost: float) -> bool:
        """Is it proved that a way is no better than another, or does not fit, or cannot be?"""
        return self.cannot_fit(candidate) or self._is_traced(candidate) or self.least_cost(candidate) >= best_cost

    def cannot_fit(self, candidate: Candidate) -> bool:
        """Is it proved that a way does not fit, or cannot be?"""
        outcome = self._outcomes.get(key_of(candidate))
        if outcome is not None:
            return outcome.evaluated is None or not outcome.evaluated.fits
        return bool(self.reason(candidate))

    def reason(self, candidate: Candidate) -> str:
        """Why a way that was not traced is out of the question; empty where it is not."""
        failed = self._bounds.failure(candidate)
        if failed:
            return failed
        size, seconds = self._bounds.least_bytes(candidate), self._bounds.least_seconds(candidate)
        needed = self._needed(candidate.spec, size)
        if needed > self._limit_bytes:
            limit = int(self._limit_bytes)
            return f"at least {over(size, needed, limit)} the {format_bytes(limit)} for the step, by a bound"
        if seconds > self._limit_seconds:
            return f"at least {seconds:.2f} s a step, {self._limit_seconds:g} s allowed"
        return ""

    def proof(self, ways: Sequence[Candidate], best: Evaluated | None, costs: Collection[float]) -> RecommendProof:
        """Return what is proved of all ways."""
        lowest = min(costs, default=inf)
        left = [each for each in ways if not self.is_settled(each, lowest)]
        floors = [self.least_cost(each) for each in left]
        if best is not None and _is_planned(best):
            floors += self._of_plans(ways, best.candidate.spec.checkpoint)
        floor = min(floors, default=lowest)
        may_fit = [len(each.changes) for each in ways if not self.cannot_fit(each)]
        least, is_reached = self._least(ways) if not left and best is None else (None, False)
        is_best = best is not None and floor >= lowest
        gap = (max(0.0, lowest / floor - 1) if floor > 0 else None) if best is not None else None
        found, missed = ("best" if is_best else "best_of_proved"), ("not_found" if left else "nothing_fits")
        return RecommendProof(
            ending=found if best is not None else missed,  # type: ignore[arg-type]
            ways=len(ways),
            proved=len(ways) - len(left),
            gap=gap,
            least_bytes=least,
            is_least_reached=is_reached,
            least_changes=min(may_fit, default=None),
        )

    def _is_traced(self, candidate: Candidate) -> bool:
        return key_of(candidate) in self._outcomes

    def _of_plans(self, ways: Sequence[Candidate], plan: str) -> list[float]:
        """What other checkpoint plans would cost at least, where the best has one."""
        checkpointed = [each for each in ways if each.spec.checkpoint == "full"]
        return [self.least_cost(replace(each, spec=replace(each.spec, checkpoint=plan))) for each in checkpointed]

    def _least(self, ways: Sequence[Candidate]) -> tuple[Bytes | None, bool]:
        """Return the least device peak of all ways, and whether one that was traced has it."""
        sizes: list[tuple[int, bool]] = []
        for each in ways:
            outcome = self._outcomes.get(key_of(each))
            if outcome is None and not self._bounds.failure(each):
                sizes.append((self._bounds.least_bytes(each), False))
            elif outcome is not None and outcome.evaluated is not None:
                sizes.append((outcome.evaluated.device_bytes, True))
        if not sizes:
            return None, False
        size = min(each for each, _ in sizes)
        return Bytes(size), (size, True) in sizes


def _is_planned(best: Evaluated) -> bool:
    """Does the best run under a checkpoint plan, of which there may be better ones?"""
    return best.candidate.spec.checkpoint not in ("none", "full")


def key_of(candidate: Candidate) -> str:
    """What tells one way from another."""
    return repr(candidate.spec)
