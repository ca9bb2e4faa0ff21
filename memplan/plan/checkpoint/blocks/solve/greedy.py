"""A baseline: move one block at a time to the option that frees most bytes per second where memory is highest."""

import time
from collections.abc import Callable, Iterator

from memplan.plan.checkpoint.blocks.problem.memory import position_bytes
from memplan.plan.checkpoint.blocks.problem.records import (
    BlockChoice,
    BlockProblem,
    ChoiceResult,
    FeasibleChoice,
    InfeasibleChoice,
    Option,
)
from memplan.plan.checkpoint.blocks.problem.seconds import extra_seconds
from memplan.units import Bytes


def solve(problem: BlockProblem, budget: Bytes, *, time_limit: float) -> ChoiceResult:
    """Descend from every block's cheapest option until the step fits.

    Options that offload are left aside. When the time is over, the descent ends where it stands.

    Returns:
        Feasible without a bound, or Infeasible (unproved) with the least peak that the descent passed.
    """
    choice, least, at = _descend(problem, budget, time.monotonic() + time_limit)
    if least <= budget:
        return FeasibleChoice(choice=choice, seconds=extra_seconds(problem, choice), bound_seconds=None)
    return InfeasibleChoice(position=at, least_bytes=least, choice=choice, is_proved=False)


def _descend(problem: BlockProblem, budget: int, ends: float) -> tuple[BlockChoice, Bytes, int]:
    """The choice where the descent ends or the lowest one it passed, its peak and where that is."""
    choice = cheapest(problem)
    tried = {(block, option) for block, option in enumerate(choice.options)}
    lowest: tuple[BlockChoice, Bytes, int] | None = None
    while True:
        alive = position_bytes(problem, choice)
        most = max(alive)
        at = alive.index(most)
        if lowest is None or most < lowest[1]:
            lowest = choice, most, at
        if most <= budget or time.monotonic() > ends:
            return lowest
        moves = [move for move in _moves(problem, choice, at) if move[1:] not in tried]
        if not moves:
            return lowest
        # An option left behind is not taken again, so that the descent ends.
        _, block, option = min(moves)
        tried.add((block, option))
        choice = BlockChoice(options=(*choice.options[:block], option, *choice.options[block + 1 :]))


def cheapest(problem: BlockProblem) -> BlockChoice:
    """Every block's quickest option, the smallest of equally quick ones; nothing is offloaded."""
    return _least(problem, lambda option: (option.seconds, option.kept_bytes))


def smallest(problem: BlockProblem) -> BlockChoice:
    """Every block's option that keeps least, nothing being offloaded."""
    return _least(problem, lambda option: (option.kept_bytes, option.backward_peak_bytes))


def _least(problem: BlockProblem, figures: Callable[[Option], tuple[float, float]]) -> BlockChoice:
    """Every block's option of the least figures, the first of equal ones."""
    menus = [[index for index, o in enumerate(block.options) if not o.offloaded_bytes] for block in problem.blocks]
    return BlockChoice(
        options=tuple(
            min(menu, key=lambda index: figures(block.options[index]))
            for block, menu in zip(problem.blocks, menus, strict=True)
        )
    )


def _moves(problem: BlockProblem, choice: BlockChoice, at: int) -> Iterator[tuple[float, int, int]]:
    """Moves (seconds per byte freed at a position, block, option)."""
    for index, block in enumerate(problem.blocks):
        before = block.options[choice.options[index]]
        for number, option in enumerate(block.options):
            freed = _at(problem, index, before, at) - _at(problem, index, option, at)
            if freed > 0 and not option.offloaded_bytes:
                yield (option.seconds - before.seconds) / freed, index, number


def _at(problem: BlockProblem, index: int, option: Option, at: int) -> int:
    """Bytes that a block answers for at a position; a tensor is halved between its usual two holders."""
    block = problem.blocks[index]
    total = option.kept_bytes * sum(forward < at <= backward for forward, backward in block.spans)
    if problem.positions[at].block == index:
        is_backward = problem.positions[at].phase == "backward"
        total += option.backward_peak_bytes if is_backward else option.forward_peak_bytes
    for held in option.holds:
        interface = problem.interfaces[held]
        if interface.forward_end < at <= block.spans[interface.micro_batch][1]:
            total += interface.nbytes // 2
    return total
