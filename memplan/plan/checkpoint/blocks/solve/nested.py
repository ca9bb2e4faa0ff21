"""Read the table of nested choices: the cheapest choice that meets a budget, and a bound on all of them.

A choice never takes more than its slots, as everything that stays is rounded up: so that the table's choices hold. What
rounding takes from a choice is less than ``lost`` slots: so that no choice is cheaper than the table's for that many
more.

Corrections of what is steady leave everything else of a problem as it is. The table of the problem before them still
answers, with as much less or more memory as they amount to; choices are judged on exact bytes of the corrected one.
"""

import math

from memplan.plan.checkpoint.blocks.problem.memory import peak
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem
from memplan.plan.checkpoint.blocks.solve.greedy import cheapest
from memplan.plan.checkpoint.blocks.solve.nested_table import NestedTable

PRECISION = 1e-5
"""Share by which sums of a few hundred single-precision costs may be off."""


class NestedSolver:
    """Answers about one problem, or the same one with other steady bytes.

    ``ends`` is a moment of the monotonic clock; ``is_flat`` leaves segments aside, for many more slots.

    Raises:
        TimeoutError: It is over.
    """

    def __init__(self, problem: BlockProblem, ends: float, *, is_flat: bool = False) -> None:
        self._stated = problem
        self._table = NestedTable(problem, ends, is_flat=is_flat)

    def knows(self, problem: BlockProblem) -> bool:
        """Is this the same problem but for its steady bytes?"""
        stated = self._stated
        return problem is stated or (
            (problem.blocks, problem.interfaces) == (stated.blocks, stated.interfaces)
            and len(problem.positions) == len(stated.positions)
        )

    def within(self, problem: BlockProblem, budget: int) -> BlockChoice | None:
        """The cheapest choice that meets a budget, as far as slots tell."""
        easy = cheapest(problem)
        if peak(problem, easy)[0] <= budget:
            return easy
        less, more = self._corrected(problem)
        low, high = self._slots(budget - more), self._slots(budget + less) + math.ceil(self._table.grid.lost)
        high = min(high, self._table.slots) + 1
        found = self._fitting(problem, low, budget) or self._fitting(problem, self._least_slots(), budget)
        # Not every choice loses what rounding may take: halve what lies between those that fit and those that do not.
        while high - low > 1:
            middle = (low + high) // 2
            choice = self._fitting(problem, middle, budget)
            low, high, found = (middle, high, choice) if choice is not None else (low, middle, found)
        return found

    def bound(self, problem: BlockProblem, budget: int, *, with_segment: bool = False) -> float:
        """No choice (``with_segment``: no segmented one) that meets the budget costs less; infinite: none meets it."""
        table = self._table
        less, _ = self._corrected(problem)
        slots = math.floor((budget + less + table.doubtful - table.base) / table.grid.unit + table.grid.lost) + 1
        if slots > table.slots:
            return 0.0
        return table.seconds(slots, with_segment=with_segment) * (1 - PRECISION)

    def _least_slots(self) -> int:
        low, high = 0, self._table.slots
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if math.isfinite(self._table.seconds(middle)) else (middle + 1, high)
        return low

    def _fitting(self, problem: BlockProblem, slots: int, budget: int) -> BlockChoice | None:
        """The table's choice for a number of slots, if it meets the budget."""
        choice = self._table.choice(slots)
        return choice if choice is not None and peak(problem, choice)[0] <= budget else None

    def _slots(self, budget: int) -> int:
        return max(-1, min((budget - self._table.base) // self._table.grid.unit, self._table.slots))

    def _corrected(self, problem: BlockProblem) -> tuple[int, int]:
        """Most bytes that a problem says less at some position than the stated one, and most that it says more."""
        changes = [
            after.fixed_bytes - before.fixed_bytes
            for before, after in zip(self._stated.positions, problem.positions, strict=True)
        ]
        return max(0, -min(changes)), max(0, *changes)
