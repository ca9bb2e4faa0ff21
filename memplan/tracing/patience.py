"""How often a question is answered alike within a step: loops that only data end are left, in bounded time."""

from collections.abc import Mapping

from memplan.tracing.asking import searches
from memplan.tracing.heard import Place
from memplan.tracing.program_text import Question
from memplan.tracing.records import Way

ROUNDS: Mapping[Way, int] = {"likely": 3, "early": 1, "other": 3, "most": 12, "later": 3}
"""Rounds of a loop that only data ends. Chosen: three show what a round leaves behind for the next, twelve how that
grows while a trace takes no more than four times as long. Data may go on for longer: the report says so."""
VISITS = 100
"""How often a question inside a loop is answered alike in a step; few loops that end by themselves are longer.

Chosen above what torch's own solvers do by default (``torch/optim/lbfgs.py``: 20 iterations, 25 evaluations)."""
MOST_VISITS = 10_000
"""The same, where no loop is in sight: it may be in another function.

Chosen so that a program which reads one number for each token of a long sequence is no loop yet."""


class Patience:
    """Counts how often each question was asked in a step.

    Args:
        way: How what nobody knows turns out.
    """

    def __init__(self, way: Way) -> None:
        self._way: Way = way
        self._visits: dict[Place, int] = {}

    def begin_step(self) -> None:
        """Forget how often each question was asked."""
        self._visits.clear()

    def count(self, place: Place) -> int:
        """Count one more question; return how many there were."""
        self._visits[place] = self._visits.get(place, 0) + 1
        return self._visits[place]

    def forget(self, place: Place) -> None:
        """Begin to count anew."""
        self._visits[place] = 0

    def of(self, asked: Question) -> int:
        """Return how often a question is answered alike."""
        if searches(asked):
            # Losses fall (``decisions.DECAY``): a slope that is small enough ends it, not a loss that has risen.
            return VISITS if asked.is_more and asked.kind == "exit" else 1
        if asked.endless or (asked.kind == "loop" and self._way == "early"):
            return ROUNDS[self._way]
        return VISITS if asked.in_while or asked.kind == "exit" else MOST_VISITS
