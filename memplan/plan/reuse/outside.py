"""Solvers that look at a clock only between phases, in a process that ends when the time is over."""

import time
from collections.abc import Callable

from memplan.errors import EstimateError
from memplan.job.isolate import run_isolated
from memplan.plan.reuse.bound import HeightBound
from memplan.plan.reuse.records import ArenaPlacement, Problem, Result
from memplan.plan.reuse.result import ended

Improve = Callable[[Problem, ArenaPlacement, HeightBound, float], Result]
"""Improves a placement until a moment of the monotonic clock, which is one for all processes of a machine."""
BEGIN_SECONDS = 0.5
"""For a process and its solver to begin on an idle machine; with less there is no answer to be had."""
RETURN_SHARE = 0.05
"""Of the time, kept for what was found to come back."""


def improved_outside(
    improve: Improve, problem: Problem, start: ArenaPlacement, bound: HeightBound, deadline: float
) -> Result:
    """Improve a placement in a process of its own; without an answer in time the placement is what it was.

    ``improve`` is a function at module level; its process is killed at the deadline (monotonic clock).
    """
    left = deadline - time.monotonic()
    if left > BEGIN_SECONDS:
        asked = (problem, start, bound, deadline - RETURN_SHARE * left)
        try:
            return run_isolated(improve, *asked, timeout=left, ask=False)
        except EstimateError:
            # It had not ended in time, or not enough memory.
            pass
    return ended(problem, start, bound, method="greedy")
