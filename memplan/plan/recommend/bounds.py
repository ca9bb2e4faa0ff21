"""Bounds of ways that were not traced: they need at least so much, and take at least so long, because others do.

Each law (``least_seconds``, ``least_bytes``) is checked whenever two traces meet it; a job that breaks one has no
bounds any more (``holds``). A failure speaks for other micro-batches only where its own works otherwise.
"""

from dataclasses import dataclass

from memplan.hardware.profile import GpuProfile
from memplan.plan.recommend.evaluate import Evaluation
from memplan.plan.recommend.known import KnownWays
from memplan.plan.recommend.least_bytes import least_bytes
from memplan.plan.recommend.least_seconds import least_seconds
from memplan.plan.recommend.records import Candidate, Evaluated, Group

ELSEWHERE: tuple[Group, ...] = ("parallel", "precision", "optimizer", "lora", "quantize", "attention")
"""Changes with which something may work that fails without them."""
ROUNDING = 1e-9
"""Sums in another order differ by so much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failed:
    texts: frozenset[str]
    micro_batch: int
    reason: str


class Bounds:
    """Learns from traces what other ways need at least."""

    def __init__(self, profile: GpuProfile) -> None:
        """Know nothing yet: no way needs anything."""
        self._profile = profile
        self._known = KnownWays()
        self._failed: list[_Failed] = []
        self.holds = True
        """Has no trace contradicted a bound?"""

    def learn(self, outcome: Evaluation) -> None:
        """See what came of a way."""
        if outcome.evaluated is None:
            texts, batch = _texts(outcome.candidate), outcome.candidate.spec.batch_size
            self._failed.append(_Failed(texts=texts, micro_batch=batch, reason=outcome.reason))
            return
        self._known.learn(outcome.evaluated, outcome)
        self.holds &= all(self._agrees(each.evaluated) for each in self._known.traced)

    def failure(self, candidate: Candidate) -> str:
        """Return why a way cannot be, by a part of it that failed with its micro-batch; empty if it may be."""
        texts, size = _texts(candidate), candidate.spec.batch_size
        for each in self._failed:
            if each.texts <= texts and self._fails_with(each, size) and not _elsewhere(candidate, each.texts):
                return each.reason
        return ""

    def least_bytes(self, candidate: Candidate) -> int:
        """Device bytes that a way needs at least; 0 where nothing is known."""
        return least_bytes(self._known, candidate.spec, self._profile) if self.holds else 0

    def least_seconds(self, candidate: Candidate) -> float:
        """Seconds of a step that a way takes at least; 0 where nothing is known."""
        return least_seconds(self._known, candidate, self._profile) if self.holds else 0.0

    def _agrees(self, evaluated: Evaluated) -> bool:
        candidate = evaluated.candidate
        seconds, size = evaluated.time.total, evaluated.device_bytes
        return seconds * (1 + ROUNDING) >= self.least_seconds(candidate) and size >= self.least_bytes(candidate)

    def _fails_with(self, failed: _Failed, micro_batch: int) -> bool:
        """Does what failed fail with another micro-batch? Not if that was the cause: with it something else works."""
        if micro_batch >= failed.micro_batch:
            return micro_batch == failed.micro_batch
        works = (each for each in self._known.traced if each.spec.batch_size == failed.micro_batch)
        return any(_texts(each.evaluated.candidate) < failed.texts for each in works)


def _texts(candidate: Candidate) -> frozenset[str]:
    pairs = zip(candidate.changes, candidate.groups, strict=True)
    return frozenset(text for text, group in pairs if group != "split")


def _elsewhere(candidate: Candidate, texts: frozenset[str]) -> bool:
    """Has a way, beside what failed, something with which that may work?"""
    pairs = zip(candidate.changes, candidate.groups, strict=True)
    return any(group in ELSEWHERE and text not in texts for text, group in pairs)
