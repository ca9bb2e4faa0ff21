"""The memory-time curve: what each budget between the least and the unplanned peak costs."""

import time
from dataclasses import dataclass
from typing import Protocol

from memplan.plan.checkpoint.blocks.problem.memory import peak
from memplan.plan.checkpoint.blocks.problem.records import (
    BlockChoice,
    BlockProblem,
    ChoiceResult,
    FeasibleChoice,
    InfeasibleChoice,
    OptimalChoice,
)
from memplan.plan.checkpoint.blocks.problem.seconds import extra_seconds
from memplan.plan.checkpoint.blocks.solve.greedy import cheapest
from memplan.units import Bytes

POINTS = 12
"""Budgets on a curve: enough to see its bends."""


class Solve(Protocol):
    """Any of the solvers."""

    def __call__(self, problem: BlockProblem, budget: Bytes, *, time_limit: float) -> ChoiceResult:
        """Solve a problem within a budget of bytes alive at once, in so many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """A choice that no other on the curve beats in both."""

    peak_bytes: Bytes
    """Its exact peak."""
    seconds: float
    """Its extra time per step."""
    choice: BlockChoice
    """The choice."""


def curve(problem: BlockProblem, solve: Solve, *, time_limit: float, points: int = POINTS) -> tuple[CurvePoint, ...]:
    """Solve for evenly spaced budgets.

    A choice found for one budget also stands for every larger one, so that the curve is monotone whatever the solver
    does in its time.

    Returns:
        Points with rising peaks and falling seconds; the last one costs least.

    Raises:
        UsageError: The solver does not apply to the problem.
    """
    ends = time.monotonic() + time_limit
    easy = cheapest(problem)
    most, _ = peak(problem, easy)
    found = [easy]
    least = solve(problem, Bytes(0), time_limit=time_limit / points)
    low = most
    if isinstance(least, InfeasibleChoice):
        low = least.least_bytes
        found.append(least.choice)
    for number in range(points - 1):
        left = ends - time.monotonic()
        if left <= 0:
            break
        # What is left is shared evenly: an easy budget leaves more to the others.
        budget = Bytes(low + (most - low) * number // (points - 1))
        result = solve(problem, budget, time_limit=left / (points - 1 - number))
        if isinstance(result, OptimalChoice | FeasibleChoice):
            found.append(result.choice)
    return _undominated(problem, found)


def _undominated(problem: BlockProblem, choices: list[BlockChoice]) -> tuple[CurvePoint, ...]:
    judged = [
        CurvePoint(peak_bytes=peak(problem, choice)[0], seconds=extra_seconds(problem, choice), choice=choice)
        for choice in choices
    ]
    front: list[CurvePoint] = []
    for point in sorted(judged, key=lambda each: (each.peak_bytes, each.seconds)):
        if not front or point.seconds < front[-1].seconds:
            front.append(point)
    return tuple(front)
