"""One integer program for all blocks: the cheapest options whose memory fits at every position.

One binary for each block and option, one row for each position that no other implies, tensors between blocks by
continuous variables that their holders push up, offloading by a queue with stalls. Segments are left to ``rotor``.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

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
from memplan.plan.checkpoint.blocks.solve.ilp_model import IlpModel, IlpSolution
from memplan.plan.checkpoint.blocks.solve.ilp_rows import PositionRow, PositionRows, Term, rows_of, running_bytes
from memplan.plan.checkpoint.blocks.solve.symmetry import earliest_first
from memplan.units import Bytes


def solve(problem: BlockProblem, budget: Bytes, *, time_limit: float) -> ChoiceResult:
    """Find the cheapest flat choice.

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
    left = ends - time.monotonic()
    found = IlpModel(problem, rows, budget, with_copies=with_copies).solve(left / 2 if with_copies else left)
    is_free = found.choice is not None and extra_seconds(problem, found.choice) == 0
    if with_copies and found.status != "infeasible" and not is_free:
        # Two programs: one for both has weaker bounds. Fetching ahead adds bytes: what cannot fit without never does.
        ahead = IlpModel(problem, rows, budget, with_copies=True, prefetch=True).solve(ends - time.monotonic())
        found = _better(problem, budget, found, ahead)
    if found.status == "infeasible":
        least = IlpModel(problem, rows, None, with_copies=with_copies).solve(ends - time.monotonic())
        return _least(problem, budget, least)
    return _answer(problem, budget, found)


def _better(problem: BlockProblem, budget: int, one: IlpSolution, other: IlpSolution) -> IlpSolution:
    """Return the solution of two programs together: the cheaper choice, and what neither is below."""
    fitting = [
        solution.choice
        for solution in (one, other)
        if solution.choice is not None and peak(problem, solution.choice)[0] <= budget
    ]
    return IlpSolution(
        status="stopped" if "stopped" in {one.status, other.status} else "optimal",
        choice=min(fitting, key=lambda choice: extra_seconds(problem, choice), default=None),
        bound=min(one.bound, other.bound),
    )


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


def without_implied(problem: BlockProblem, rows: PositionRows) -> PositionRows:
    """Leave out forwards that their backward implies, and stretches between blocks that a run beside them implies."""
    return replace(rows, rows=tuple(_needed(problem, rows)))


def _needed(problem: BlockProblem, rows: PositionRows) -> Iterator[PositionRow]:
    # A backward is never left out and a forward only for a backward, so that no two rows vanish for each other.
    ordered = sorted(rows.rows, key=lambda row: row.position)
    backwards = defaultdict(list)
    for row in ordered:
        if row.is_backward:
            backwards[row.block].append(row)
    for place, row in enumerate(ordered):
        others: list[PositionRow] = []
        if row.block is None:
            others += [each for each in ordered[place + 1 :] if each.block is not None][:1]
            others += [each for each in reversed(ordered[:place]) if each.block is not None][:1]
        elif not row.is_backward:
            others = backwards[row.block]
        if not any(_is_implied(problem, rows, row, other) for other in others):
            yield row


def _is_implied(problem: BlockProblem, rows: PositionRows, row: PositionRow, other: PositionRow) -> bool:
    """Is ``other`` at least as high under every choice?"""
    change: Counter[Term] = Counter(dict(rows.states[row.state]))
    change.subtract(dict(rows.states[other.state]))
    excess = row.fixed_bytes - other.fixed_bytes
    of_block: dict[int, list[tuple[Term, int]]] = defaultdict(list)
    for term, times in change.items():
        if term.block is None and len(term.holders) > 1:
            excess += max(0, times) * term.nbytes
        elif times:
            of_block[term.holders[0][0] if term.block is None else term.block].append((term, times))
    blocks = {*of_block, *(block for block in (row.block, other.block) if block is not None)}
    return excess + sum(_most(problem, rows, (row, other), block, of_block[block]) for block in blocks) <= 0


def _most(
    problem: BlockProblem,
    rows: PositionRows,
    pair: tuple[PositionRow, PositionRow],
    block: int,
    terms: list[tuple[Term, int]],
) -> int:
    """Most bytes by which one block can raise the first row above the second."""
    row, other = pair
    found = []
    for number in rows.menus[block]:
        option = problem.blocks[block].options[number]
        total = sum(
            times * (option.kept_bytes if term.block is not None else term.nbytes * (number in term.holders[0][1]))
            for term, times in terms
        )
        total += running_bytes(row, option) if row.block == block else 0
        total -= running_bytes(other, option) if other.block == block else 0
        found.append(total)
    return max(found)
