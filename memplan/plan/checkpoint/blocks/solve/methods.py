"""Solvers by name, and the default: the integer program over flat choices beside the recursion over nested ones.

Neither of the two knows what the other does: the program has no segments, the recursion rounds bytes. Together they
bound every choice: a flat one costs no less than the program proves, one with segments no less than the recursion's
bound.
"""

import math
import time
from contextlib import suppress
from dataclasses import replace
from importlib import import_module

from memplan.plan.checkpoint.blocks.problem.copies import offloads
from memplan.plan.checkpoint.blocks.problem.records import (
    BlockProblem,
    ChoiceResult,
    ChoiceTimedOut,
    FeasibleChoice,
    InfeasibleChoice,
    OptimalChoice,
)
from memplan.plan.checkpoint.blocks.problem.seconds import extra_seconds
from memplan.plan.checkpoint.blocks.request import Method
from memplan.plan.checkpoint.blocks.solve import ilp
from memplan.plan.checkpoint.blocks.solve.curve import Solve
from memplan.plan.checkpoint.blocks.solve.nested import PRECISION, NestedSolver
from memplan.plan.checkpoint.blocks.solve.nested_least import least_of
from memplan.plan.checkpoint.blocks.solve.symmetry import is_nested
from memplan.units import Bytes

MANY_BLOCKS = 64
"""With more of them the integer program takes longer than a table that finds as good a choice, up to rounding: it is
left to prove how good that is."""


def solver(method: Method) -> Solve:
    """Return the solver of a name.

    ``ilp``, the default, also weighs what its program does not know: segments, where the blocks are a chain.
    """
    if method == "ilp":
        return CombinedSolver()
    solve: Solve = import_module(f"memplan.plan.checkpoint.blocks.solve.{method}").solve
    return solve


def rough_solver(solve: Solve) -> Solve:
    """Return the quicker way of a solver that has one, else the solver."""
    return solve.roughly if isinstance(solve, CombinedSolver) else solve


def sketching_solver(solve: Solve, problem: BlockProblem) -> Solve | None:
    """Return what finds the plans to trace where that is quicker than the solver itself; None where it is not."""
    return rough_solver(solve) if isinstance(solve, CombinedSolver) and len(problem.blocks) > MANY_BLOCKS else None


class CombinedSolver:
    """A solver of flat and nested choices.

    It keeps its tables for other budgets of one problem, and for corrections of its steady bytes.
    """

    def __init__(self) -> None:
        self._tables: dict[bool, NestedSolver] = {}

    def __call__(self, problem: BlockProblem, budget: Bytes, *, time_limit: float) -> ChoiceResult:
        """Find the cheapest choice.

        Returns:
            Optimal where neither a flat nor a nested choice can be cheaper, up to the precision of costs; Feasible with
            a bound of both; Infeasible with the least budget; TimedOut where nothing was found. Where blocks may be
            offloaded, nested choices are looked for, and bounds speak of them, only where no flat one fits.
        """
        ends = time.monotonic() + time_limit
        flat = ilp.solve(problem, budget, time_limit=time_limit)
        is_free = isinstance(flat, OptimalChoice) and flat.seconds == 0
        is_enough = is_free or (offloads(problem) and not isinstance(flat, InfeasibleChoice))
        if is_enough or not problem.chain or not is_nested(problem):
            return flat
        try:
            nested = self._known(problem, ends)
        except TimeoutError:
            return _unproved(flat)
        return _answer(problem, budget, flat, nested)

    def roughly(self, problem: BlockProblem, budget: Bytes, *, time_limit: float) -> ChoiceResult:
        """As a call, but where the blocks are a chain by tables alone: in a tenth of the time, up to rounding."""
        ends = time.monotonic() + time_limit
        if problem.chain and is_nested(problem) and not offloads(problem):
            # Without segments a table has many more slots: what it finds is hardly ever dearer than the program's.
            with suppress(TimeoutError):
                tables = [self._known(problem, ends, is_flat=is_flat) for is_flat in (True, False)]
                fitting = [choice for table in tables if (choice := table.within(problem, budget)) is not None]
                least = None if fitting else least_of(problem)
                if least is not None and least.least_bytes > budget:
                    return least
                fitting += [] if least is None else [least.choice]
                best = min(fitting, key=lambda choice: extra_seconds(problem, choice))
                return FeasibleChoice(choice=best, seconds=extra_seconds(problem, best), bound_seconds=None)
        return self(problem, budget, time_limit=ends - time.monotonic())

    def _known(self, problem: BlockProblem, ends: float, *, is_flat: bool = False) -> NestedSolver:
        if is_flat not in self._tables or not self._tables[is_flat].knows(problem):
            self._tables[is_flat] = NestedSolver(problem, ends, is_flat=is_flat)
        return self._tables[is_flat]


def _unproved(flat: ChoiceResult) -> ChoiceResult:
    """Return the result for flat choices alone, without a bound on nested ones."""
    match flat:
        case OptimalChoice() | FeasibleChoice():
            return FeasibleChoice(choice=flat.choice, seconds=flat.seconds, bound_seconds=None)
        case InfeasibleChoice():
            return replace(flat, is_proved=False)
        case ChoiceTimedOut():
            return flat


def _answer(problem: BlockProblem, budget: Bytes, flat: ChoiceResult, nested: NestedSolver) -> ChoiceResult:
    choice = nested.within(problem, budget)
    found = [(flat.seconds, flat.choice)] if isinstance(flat, OptimalChoice | FeasibleChoice) else []
    found += [(extra_seconds(problem, choice), choice)] if choice is not None else []
    if not found:
        least = _least(problem, flat)
        if not isinstance(least, InfeasibleChoice) or least.least_bytes > budget:
            return least
        # Rounding hid it from the table.
        found = [(extra_seconds(problem, least.choice), least.choice)]
    # Of equally quick ones the flat one, which comes first.
    seconds, choice = min(found, key=lambda each: each[0])
    if offloads(problem):
        return FeasibleChoice(choice=choice, seconds=seconds, bound_seconds=None)
    segmented = nested.bound(problem, budget, with_segment=True)
    bound = max(nested.bound(problem, budget), min(_bound(flat), segmented))
    if bound >= seconds * (1 - 2 * PRECISION):
        return OptimalChoice(choice=choice, seconds=seconds)
    return FeasibleChoice(choice=choice, seconds=seconds, bound_seconds=bound)


def _bound(flat: ChoiceResult) -> float:
    """Return a lower bound on the cost of flat choices."""
    match flat:
        case OptimalChoice():
            return flat.seconds
        case FeasibleChoice():
            return flat.bound_seconds or 0.0
        case InfeasibleChoice():
            return math.inf if flat.is_proved else 0.0
        case ChoiceTimedOut():
            return 0.0


def _least(problem: BlockProblem, flat: ChoiceResult) -> ChoiceResult:
    if not isinstance(flat, InfeasibleChoice):
        return flat
    least = least_of(problem)
    if least.least_bytes < flat.least_bytes:
        return least
    # Both look for the least peak, one of flat choices alone: neither can be above it where the other is proved.
    return replace(flat, is_proved=least.is_proved and least.least_bytes == flat.least_bytes)
