"""One integer program for all blocks: the cheapest options whose memory fits at every position.

One binary for each block and option, one row for each position that no other implies, tensors between blocks by
continuous variables that their holders push up, offloading by a queue with stalls. Segments are left to ``rotor``.
"""

import time

from memplan.plan.checkpoint.blocks.problem.copies import offloads
from memplan.plan.checkpoint.blocks.problem.memory import peak
from memplan.plan.checkpoint.blocks.problem.records import (
    BlockProblem,
    ChoiceResult,
    ChoiceTimedOut,
    FeasibleChoice,
    InfeasibleChoice,
    OptimalChoice,
)
from memplan.plan.checkpoint.blocks.problem.seconds import extra_seconds
from memplan.plan.checkpoint.blocks.solve.greedy import cheapest, smallest
from memplan.plan.checkpoint.blocks.solve.ilp_implied import without_implied
from memplan.plan.checkpoint.blocks.solve.ilp_model import IlpModel, IlpSolution
from memplan.plan.checkpoint.blocks.solve.ilp_rows import rows_of
from memplan.plan.checkpoint.blocks.solve.symmetry import earliest_first
from memplan.units import Bytes


def solve(problem: BlockProblem, budget: Bytes, *, time_limit: float) -> ChoiceResult:
    """Find the cheapest flat choice.

    Args:
        problem: The step and its blocks.
        budget: Bytes that may be alive at most, at every position.
        time_limit: Seconds for the search.

    Returns:
        Optimal where proved (up to ``RELATIVE_GAP``; within two bytes of the budget where blocks may be offloaded),
        Feasible with a bound where time ended first, Infeasible with the least budget, TimedOut where nothing was
        found.
    """
    ends = time.monotonic() + time_limit
    easy = cheapest(problem)
    if peak(problem, easy)[0] <= budget:
        return OptimalChoice(choice=easy, seconds=extra_seconds(problem, easy))
    with_copies = offloads(problem) and problem.host_link_bandwidth > 0
    # With copies, memory differs between positions by what is under way: every row is needed.
    rows = rows_of(problem, every_position=True) if with_copies else without_implied(problem, rows_of(problem))
    found = IlpModel(problem, rows, budget, with_copies=with_copies).solve(ends - time.monotonic())
    if found.status == "infeasible":
        least = IlpModel(problem, rows, None, with_copies=with_copies).solve(ends - time.monotonic())
        return _least(problem, budget, least)
    return _answer(problem, budget, found)


def _answer(problem: BlockProblem, budget: int, found: IlpSolution) -> ChoiceResult:
    if found.choice is None or peak(problem, found.choice)[0] > budget:
        return ChoiceTimedOut(best=None)
    is_plain = not any(b.options[o].offloaded_bytes for b, o in zip(problem.blocks, found.choice.options, strict=True))
    choice = earliest_first(problem, found.choice, budget) if is_plain else found.choice
    seconds = extra_seconds(problem, choice)
    if found.status == "optimal":
        return OptimalChoice(choice=choice, seconds=seconds)
    return FeasibleChoice(choice=choice, seconds=seconds, bound_seconds=min(found.bound, seconds))


def _least(problem: BlockProblem, budget: int, least: IlpSolution) -> ChoiceResult:
    choice = least.choice or smallest(problem)
    most, at = peak(problem, choice)
    if most <= budget:
        # Only where copies are rounded: the budget is met by fewer bytes than were given away for it.
        return FeasibleChoice(choice=choice, seconds=extra_seconds(problem, choice), bound_seconds=None)
    return InfeasibleChoice(position=at, least_bytes=most, choice=choice, is_proved=least.status == "optimal")
