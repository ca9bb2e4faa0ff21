"""Solve, apply, trace again, correct: until the traced device peak of a plan meets the budget.

The block-level problem knows live bytes; a device also holds what its allocator cannot use. How much that is depends on
the plan, so that it is taken from the last trace, and the search goes on with what it leaves::

    live budget ──► solver ──► plan ──► trace ──► device peak ≤ budget?  ──► yes: the promise
         ▲                                             │ no, or far below
         └── less what the allocator lost ◄────────────┘ and what the formula missed

What it finds is measured against a bound: a plan that fits never holds more live bytes than the budget less the CUDA
context, however little its allocator loses. What the solver says of that much memory is the ``limit``. A plan far above
it is no reason to stop: losses jump from plan to plan, so that plans with more live bytes are traced as well.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from memplan.plan.checkpoint.blocks.problem.memory import position_bytes, with_peaks
from memplan.plan.checkpoint.blocks.problem.records import (
    BlockChoice,
    BlockProblem,
    ChoiceResult,
    InfeasibleChoice,
    OptimalChoice,
)
from memplan.plan.checkpoint.blocks.prove.records import Proof, TracedPlan, bound_of, chosen
from memplan.plan.checkpoint.blocks.solve.curve import CurvePoint
from memplan.plan.checkpoint.blocks.solve.greedy import smallest
from memplan.units import Bytes

MOST_ROUNDS = 4
"""Plans traced for one budget."""
SPARE_SHARE = 0.01
"""Share of the budget by which formula or allocator may turn out too careful before a cheaper plan is looked for."""
SPARE_TIME = 0.02
"""Share of the step's time by which a plan may be above the bound before others are tried."""
LEANINGS = 2
"""Plans traced that a formula proposes which has been put right at the best one."""
HALVINGS = 3
"""Plans traced between one that fits and is far from the bound, and one that takes too much."""
LADDER = (1 / 2, 3 / 4, 1 / 4)
"""Where they are looked for, between the live bytes of the plan (0) and all that there may be (1)."""

Solve = Callable[[BlockProblem, Bytes], ChoiceResult]
"""Solver with its time limit bound."""


def prove(
    problem: BlockProblem,
    unplanned: TracedPlan,
    budget: int,
    *,
    context_bytes: int,
    solve: Solve,
    trace: Callable[[BlockChoice], TracedPlan],
    sketch: Solve | None = None,
) -> Proof:
    """Find a plan whose traced device peak meets a budget.

    Args:
        problem: The block-level problem.
        unplanned: The step without a plan.
        budget: Device peak at most.
        context_bytes: Of the budget, what no tensor can ever have.
        solve: Solves a problem for a budget of live bytes.
        trace: Applies a choice and traces the step.
        sketch: Finds what to trace, where that is quicker; the bound is left to ``solve``.

    Returns:
        The proof; whether its plan fits, its ``traced.device_bytes`` says.
    """
    if unplanned.device_bytes <= budget:
        best = OptimalChoice(choice=unplanned.choice, seconds=0.0)
        return Proof(result=best, problem=problem, traced=unplanned, found=(unplanned,), limit=best, solve_seconds=0.0)
    return _Search(problem, unplanned, budget, budget - context_bytes, solve, trace, sketch or solve).proof()


def with_least(
    proof: Proof,
    problem: BlockProblem,
    points: Sequence[CurvePoint],
    budget: int,
    trace: Callable[[BlockChoice], TracedPlan],
) -> Proof:
    """Trace the choices of the least memory, too, where the plan fits: how little would do is known from traces alone.

    What has the fewest bytes alive may leave more lost than the choice in which every block keeps least.

    The curve has the point of least memory first.
    """
    if proof.traced.device_bytes <= budget:
        for choice in (points[0].choice, smallest(problem)):
            proof = proof.with_traced(choice, trace)
    return proof


class _Search:
    def __init__(  # noqa: PLR0917 - the arguments of ``prove``.
        self,
        problem: BlockProblem,
        unplanned: TracedPlan,
        budget: int,
        most_live: int,
        solve: Solve,
        trace: Callable[[BlockChoice], TracedPlan],
        sketch: Solve,
    ) -> None:
        self._stated = self._problem = problem
        self._budget, self._most_live = budget, most_live
        self._solve, self._trace, self._sketch = solve, trace, sketch
        self._found = [unplanned]
        self._live = self._tried = budget - unplanned.lost_bytes
        self._floor, self._ceiling = 0.0, math.inf
        self._answers: dict[tuple[Solve, BlockProblem, Bytes], ChoiceResult] = {}
        self._spent = 0.0

    def proof(self) -> Proof:
        """Search, and say what came of it."""
        result = self._descend()
        for problem in (self._problem, self._stated):
            if not self._fitting():
                # The steps down were too small: what is smallest of all shows whether anything fits.
                result = self._ask(problem, 0)
                self._next(result)
        if not self._fitting():
            # Nested segments have the fewest bytes alive, and an allocator may lose more on them than they save.
            self._traced(smallest(self._stated))
        for search in (self._lean, self._halve, self._climb):
            if self._is_far():
                search()
        best = self._best()
        return Proof(
            result=result,
            problem=self._problem,
            traced=best,
            found=tuple(self._found),
            limit=self._limit(),
            solve_seconds=self._spent,
        )

    def _descend(self) -> ChoiceResult:
        """Go down from what the unplanned step leaves, up where there is room; the solver's last word."""
        result = self._solved(self._live)
        if isinstance(result, InfeasibleChoice) and result.choice.segments:
            # An allocator loses most on nested segments: what it loses on a flat choice tells more of those that fit.
            result = replace(result, choice=smallest(self._stated))
        # A round whose plan is known already costs no trace.
        for _ in range(2 * MOST_ROUNDS):
            traced = self._next(result)
            known = traced or self._known(result)
            if known is None or (traced is not None and not self._is_worth_more(traced)):
                break
            if known.device_bytes > self._budget:
                if traced is None and isinstance(result, InfeasibleChoice):
                    break
                self._ceiling = min(self._ceiling, max(known.live))
            elif traced is None and self._ceiling == math.inf:
                break
            else:
                self._floor = max(self._floor, self._tried, *known.live)
            # A plan seen for the first time has just corrected the problem: the same budget may bring another one.
            is_narrow = traced is None and self._ceiling - self._floor <= SPARE_SHARE * self._budget
            if is_narrow or len(self._found) > MOST_ROUNDS:
                break
            result = self._solved(self._between())
        return result

    def _is_far(self) -> bool:
        """May there be something much better than the best that is known?"""
        limit = self._limit()
        bound = bound_of(limit)
        if not self._fitting():
            return not isinstance(limit, InfeasibleChoice)
        unplanned = self._found[0].seconds
        return bound is not None and self._best().seconds - unplanned - bound > SPARE_TIME * unplanned

    def _lean(self) -> None:
        """Trace what the formula proposes once it has been put right at the best plan: near that, it is right."""
        for _ in range(LEANINGS if self._fitting() else 0):
            best = self._best()
            problem = with_peaks(self._stated, best.choice, list(best.live))
            if self._next(self._ask(problem, self._budget - best.lost_bytes)) is None:
                break

    def _halve(self) -> None:
        """Trace plans between the best that is known and those above it that were too much."""
        for _ in range(HALVINGS if self._fitting() else 0):
            low = max(self._best().live)
            high = min((live for each in self._found[1:] if (live := max(each.live)) > low), default=low)
            if self._next(self._ask(self._stated, (low + high) // 2)) is None:
                break

    def _climb(self) -> None:
        """Trace plans with more live bytes than the best that is known: they may lose less."""
        low = max(self._best().live)
        for share in LADDER:
            self._next(self._ask(self._stated, int(low + share * (self._most_live - low))))

    def _limit(self) -> ChoiceResult:
        """The solver's answer for all the memory there is, with the problem eased by what was traced.

        Where a trace took less than the formula says, the formula gives in: every plan that was found to fit then fits
        the problem, too, and the bound is not above what it costs.
        """
        spare = [0] * len(self._stated.positions)
        for traced in self._found:
            said = position_bytes(self._stated, traced.choice)
            spare = [max(most, formula - true) for most, formula, true in zip(spare, said, traced.live, strict=True)]
        eased = tuple(
            replace(position, fixed_bytes=Bytes(position.fixed_bytes - less))
            for position, less in zip(self._stated.positions, spare, strict=True)
        )
        return self._ask(replace(self._stated, positions=eased), self._most_live, is_bound=True)

    def _solved(self, live: int) -> ChoiceResult:
        self._tried = live
        return self._ask(self._problem, live)

    def _ask(self, problem: BlockProblem, live: int, *, is_bound: bool = False) -> ChoiceResult:
        """The solver's answer; what was asked before is not solved again."""
        solve = self._solve if is_bound else self._sketch
        asked = solve, problem, Bytes(max(0, live))
        if asked not in self._answers:
            started = time.perf_counter()
            self._answers[asked] = solve(*asked[1:])
            self._spent += time.perf_counter() - started
        return self._answers[asked]

    def _next(self, result: ChoiceResult) -> TracedPlan | None:
        """The trace of what the solver proposes; None where there is nothing new to trace."""
        choice = chosen(result)
        return None if choice is None else self._traced(choice)

    def _traced(self, choice: BlockChoice) -> TracedPlan | None:
        if any(each.choice == choice for each in self._found):
            return None
        traced = self._trace(choice)
        self._found.append(traced)
        return traced

    def _is_worth_more(self, traced: TracedPlan) -> bool:
        """Correct budget and problem by what was traced; is another round worth its trace?"""
        peaks, left = list(traced.live), self._budget - traced.lost_bytes
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

    def _known(self, result: ChoiceResult) -> TracedPlan | None:
        return next((each for each in self._found if each.choice == chosen(result)), None)

    def _between(self) -> int:
        """The next budget of live bytes: above what fitted, below what did not.

        What an allocator loses need not be the same for all plans: one that keeps more may well lose more.
        """
        if self._floor < self._live < self._ceiling or self._ceiling == math.inf:
            return self._live
        return int(self._floor + self._ceiling) // 2 if self._floor else int(min(self._live, self._ceiling - 1))

    def _fitting(self) -> list[TracedPlan]:
        return [each for each in self._found if each.device_bytes <= self._budget]

    def _best(self) -> TracedPlan:
        """The cheapest that fits, else the smallest."""
        fitting = self._fitting()
        if fitting:
            return min(fitting, key=lambda each: (each.seconds, each.device_bytes))
        return min(self._found, key=lambda each: each.device_bytes)
