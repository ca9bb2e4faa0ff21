"""Solve, apply, trace again, correct: until the traced device peak of a plan meets the budget.

The block-level problem knows live bytes; a device also holds what its allocator cannot use. How much that is depends on
the plan, so that it is taken from the last trace, and the search goes on with what it leaves::

    live budget ──► solver ──► plan ──► trace ──► device peak ≤ budget?  ──► yes: the promise
         ▲                                             │ no, or far below
         └── less what the allocator lost ◄────────────┘ and what the formula missed
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from memplan.plan.checkpoint.block.memory import position_bytes
from memplan.plan.checkpoint.block.records import BlockProblem, Choice, Feasible, Infeasible, Optimal, Result, TimedOut
from memplan.plan.checkpoint.probe.figures import true_peaks
from memplan.plan.checkpoint.probe.interfaces import Probe
from memplan.plan.checkpoint.probe.problem import with_peaks
from memplan.units import Bytes

MOST_ROUNDS = 4
"""Plans traced for one budget."""
SPARE_SHARE = 0.01
"""Share of the budget by which formula or allocator may turn out too careful before a cheaper plan is looked for."""

Solve = Callable[[BlockProblem, Bytes], Result]
"""Solver with its time limit bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A choice with its plan in force."""

    choice: Choice
    """The choice."""
    probe: Probe
    """The traced step."""
    device_bytes: int
    """Device peak, as ``estimate`` reports it."""
    seconds: float
    """Roofline time of the step."""
    flops: int
    """FLOPs of the step."""

    @property
    def lost_bytes(self) -> int:
        """What the device holds beyond the most bytes alive in the last step."""
        return self.device_bytes - max(true_peaks(self.probe))


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What came of the search."""

    first: Result
    """What the solver said of the uncorrected problem."""
    result: Result
    """The solver's last word."""
    problem: BlockProblem
    """The problem as it stood then."""
    traced: Traced
    """The best plan that meets the budget; if none does, the one of the least peak."""
    is_first: bool
    """Is it what the solver said of the uncorrected problem?"""
    bound_seconds: float | None
    """The least bound that a solver proved in any round; None where one of them proved none."""
    rounds: int
    """Plans traced."""
    solve_seconds: float
    """Wall time in the solver."""


def prove(
    problem: BlockProblem,
    unplanned: Traced,
    budget: int,
    *,
    solve: Solve,
    trace: Callable[[Choice], Traced],
    positions: Callable[[Probe], list[int]],
) -> Proof:
    """Find a plan whose traced device peak meets a budget.

    Args:
        problem: The block-level problem.
        unplanned: The step without a plan.
        budget: Device peak at most.
        solve: Solves a problem for a budget of live bytes.
        trace: Applies a choice and traces the step.
        positions: The most live bytes at each position of the problem, in a traced step.

    Returns:
        The proof; whether its plan fits, its ``traced.device_bytes`` says.
    """
    return _Search(problem, unplanned, budget, solve, trace, positions).proof()


class _Search:
    def __init__(  # noqa: PLR0917 - the arguments of ``prove``.
        self,
        problem: BlockProblem,
        unplanned: Traced,
        budget: int,
        solve: Solve,
        trace: Callable[[Choice], Traced],
        positions: Callable[[Probe], list[int]],
    ) -> None:
        self._problem, self._budget = problem, budget
        self._solve, self._trace, self._positions = solve, trace, positions
        self._live = budget - unplanned.lost_bytes
        self._found = [unplanned]
        self._floor, self._ceiling = 0.0, math.inf
        self._tried = 0
        self._results: list[Result] = []
        self._spent = 0.0

    def proof(self) -> Proof:
        """Search, and say what came of it."""
        first = result = self._solved(self._live)
        # A round whose plan is known already costs no trace.
        for _ in range(2 * MOST_ROUNDS):
            traced = self._next(result)
            known = traced or self._known(result)
            if known is None or (traced is not None and not self._is_worth_more(traced)):
                break
            if known.device_bytes > self._budget:
                self._ceiling = min(self._ceiling, _live(known))
            elif traced is None and self._ceiling == math.inf:
                break
            else:
                self._floor = max(self._floor, self._tried, _live(known))
            # A plan seen for the first time has just corrected the problem: the same budget may bring another one.
            is_narrow = traced is None and self._ceiling - self._floor <= SPARE_SHARE * self._budget
            if is_narrow or len(self._found) > MOST_ROUNDS:
                break
            result = self._solved(self._between())
        if not self._fitting():
            # The steps down were too small: what is smallest of all shows whether anything fits.
            result = self._solved(0)
            self._next(result)
        best = self._best()
        return Proof(
            first=first,
            result=result,
            problem=self._problem,
            traced=best,
            is_first=best.choice == chosen(first),
            bound_seconds=self._bound(),
            rounds=len(self._found) - 1,
            solve_seconds=self._spent,
        )

    def _solved(self, live: int) -> Result:
        self._tried = live
        started = time.perf_counter()
        result = self._solve(self._problem, Bytes(max(0, live)))
        self._spent += time.perf_counter() - started
        self._results.append(result)
        return result

    def _bound(self) -> float | None:
        """The least of all bounds: some rounds had more memory to spend, others knew more of what it takes."""
        bounds = [_bound(result) for result in self._results if not isinstance(result, Infeasible)]
        known = [bound for bound in bounds if bound is not None]
        return min(known) if known and len(known) == len(bounds) else None

    def _next(self, result: Result) -> Traced | None:
        """The trace of what the solver proposes; None where there is nothing new to trace."""
        choice = chosen(result)
        if choice is None or any(each.choice == choice for each in self._found):
            return None
        traced = self._trace(choice)
        self._found.append(traced)
        return traced

    def _is_worth_more(self, traced: Traced) -> bool:
        """Correct budget and problem by what was traced; is another round worth its trace?"""
        peaks, left = self._positions(traced.probe), self._budget - traced.lost_bytes
        said = position_bytes(self._problem, traced.choice)
        over = traced.device_bytes - self._budget
        careful = left - self._tried + max(said) - max(peaks)
        if len(self._found) > MOST_ROUNDS or (over <= 0 and careful <= SPARE_SHARE * self._budget):
            return False
        if over <= 0:
            self._live = left
        else:
            # Only upwards: what is too much for this choice may be right for another.
            self._live = min(left, self._tried - max(0, over - max(0, max(peaks) - max(said))))
            peaks = [max(pair) for pair in zip(peaks, said, strict=True)]
        self._problem = with_peaks(self._problem, traced.choice, peaks)
        return True

    def _known(self, result: Result) -> Traced | None:
        return next((each for each in self._found if each.choice == chosen(result)), None)

    def _between(self) -> int:
        """The next budget of live bytes: above what fitted, below what did not.

        What an allocator loses need not be the same for all plans: one that keeps more may well lose more.
        """
        if self._floor < self._live < self._ceiling or self._ceiling == math.inf:
            return self._live
        return int(self._floor + self._ceiling) // 2 if self._floor else int(min(self._live, self._ceiling - 1))

    def _fitting(self) -> list[Traced]:
        return [each for each in self._found if each.device_bytes <= self._budget]

    def _best(self) -> Traced:
        """The cheapest that fits, else the smallest."""
        fitting = self._fitting()
        if fitting:
            return min(fitting, key=lambda each: (each.seconds, each.device_bytes))
        return min(self._found, key=lambda each: each.device_bytes)


def _live(traced: Traced) -> int:
    """The most bytes alive in a traced step."""
    return traced.device_bytes - traced.lost_bytes


def chosen(result: Result) -> Choice | None:
    """What a solver proposes; of an infeasible problem, what comes nearest."""
    match result:
        case Optimal() | Feasible() | Infeasible():
            return result.choice
        case TimedOut():
            return result.best


def _bound(result: Result) -> float | None:
    match result:
        case Optimal():
            return result.seconds
        case Feasible():
            return result.bound_seconds
        case _:
            return None
