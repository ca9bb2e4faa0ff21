"""The classic baselines: segments of about the square root of the number of blocks, and every block checkpointed.

Chen et al., "Training deep nets with sublinear memory cost" (2016). Of all equal lengths of segments the cheapest that
fits is taken; length 1 checkpoints every block on its own, which needs no chain.
"""

from collections.abc import Iterator

from memplan.plan.checkpoint.blocks.problem.memory import peak
from memplan.plan.checkpoint.blocks.problem.records import (
    BlockChoice,
    BlockProblem,
    ChoiceResult,
    FeasibleChoice,
    InfeasibleChoice,
)
from memplan.plan.checkpoint.blocks.problem.seconds import extra_seconds
from memplan.plan.checkpoint.blocks.solve.greedy import cheapest
from memplan.runtime.checkpoint.records import Action
from memplan.units import Bytes


def solve(problem: BlockProblem, budget: Bytes, *, time_limit: float) -> ChoiceResult:
    """Take the cheapest of a few fixed patterns that fits.

    Blocks without an option ``checkpoint`` keep everything. The patterns are few: the time limit is not needed.

    Returns:
        Feasible without a bound, or Infeasible (unproved) with the pattern of the least peak.
    """
    del time_limit
    judged = [(extra_seconds(problem, choice), *peak(problem, choice), choice) for choice in _patterns(problem)]
    fitting = [(seconds, number) for number, (seconds, most, _, _) in enumerate(judged) if most <= budget]
    if fitting:
        seconds, _, _, choice = judged[min(fitting)[1]]
        return FeasibleChoice(choice=choice, seconds=seconds, bound_seconds=None)
    _, most, at, choice = min(judged, key=lambda each: each[1])
    return InfeasibleChoice(position=at, least_bytes=most, choice=choice, is_proved=False)


def _patterns(problem: BlockProblem) -> Iterator[BlockChoice]:
    """Nothing, every block, and (in a chain) segments of each length up to half of the blocks."""
    easy = cheapest(problem)
    again = [
        next((number for number, option in enumerate(block.options) if option.action is Action.CHECKPOINT), None)
        for block in problem.blocks
    ]
    yield easy
    yield BlockChoice(
        options=tuple(kept if number is None else number for kept, number in zip(easy.options, again, strict=True))
    )
    count = len(problem.blocks)
    if not problem.chain or None in again:
        return
    for length in range(2, count // 2 + 1):
        # The rest, if any, keeps: it is next to run backward.
        segments = tuple((first, first + length) for first in range(0, count - length + 1, length))
        yield BlockChoice(options=(0,) * count, segments=segments)
        yield BlockChoice(options=(0,) * count, segments=segments[:-1])
