"""Schedules of large joint graphs: what is dropped in forward is computed again when backward first asks for it.

The stages are the ops of backward in their order; before each runs what is computed again for it. In a gradient's order
almost everything that a schedule can gain lies in few decisions per value ``i`` of forward::

    kept[i, k]      i stays in memory up to its event k: an op of backward that reads it, or that asks for it indirectly
    again[i, t]     i is computed again in stage t: where backward enters its segment or the next one (``segments``),
                    where it is read itself, or where a reader of it is

That is a handful of variables per value, however long chains get: a chain of values that all miss is computed where
backward enters its segment. Equal blocks decide in groups first (``repeats``). Memory is looked at exactly, on the
schedule that a solution means; a stage that takes too much gets a row, and the program is solved again. A row counts
what is computed again in a stage as if it all stayed to the stage's end; what it counts in vain for a solution is given
back.
"""

import time
from typing import TYPE_CHECKING

from memplan.plan.checkpoint.graph.figures import figures_of, memory_curve, unplanned
from memplan.plan.checkpoint.graph.highs import solve_binary
from memplan.plan.checkpoint.graph.records import RematGraph, Schedule
from memplan.plan.checkpoint.joint.program import DecisionProgram
from memplan.plan.checkpoint.joint.sinking import sunk

if TYPE_CHECKING:
    import numpy as np

INFINITY = float("inf")
WORTH = 1e-4
"""Of the cost, that a better solution saves at least."""
ROWS_PER_ROUND = 12
"""Stages that get a row in one round."""
ALIKE_SHARE = 0.6
"""Of the time, for programs whose repeated blocks decide in groups."""
ROUND_SHARE = 0.2
"""Of the time, that one program may take."""
MOST_VARIABLES = 4000
"""Of a program in which every block decides for itself."""


def lazy_schedule(
    graph: RematGraph, boundary: int, budget: int, *, time_limit: float, threads: int
) -> tuple[Schedule | None, Schedule]:
    """Look for a cheap schedule in the graph's order.

    Args:
        graph: The problem; nodes after the boundary are computed once.
        boundary: The node between forward and backward.
        budget: Bytes that may be alive at once, ``fixed_bytes`` included.
        time_limit: Seconds after which no further program is solved.
        threads: Of the solver.

    Returns:
        The cheapest schedule found that fits, or None, and the one of the lowest peak.
    """
    begin = time.monotonic()
    single = DecisionProgram(graph, boundary, alike=False)
    refines = len(single.program.costs) <= MOST_VARIABLES
    alike = DecisionProgram(graph, boundary, alike=True)
    search = _Search(alike, budget, time_limit * (ALIKE_SHARE if refines else 1.0), threads)
    search.run()
    if search.best is not None and refines:
        search.refine(single, time_limit - (time.monotonic() - begin))
    return search.best, search.leanest


class _Search:
    """Programs solved one after the other, each with the rows that the one before has missed."""

    def __init__(self, program: "DecisionProgram", budget: int, time_limit: float, threads: int) -> None:
        self._program, self._graph, self._budget = program, program.graph, budget
        self._end, self._threads = time.monotonic() + time_limit, threads
        self._round_seconds = time_limit * ROUND_SHARE
        self.best: Schedule | None = None
        self.leanest = unplanned(self._graph)
        self._start: dict[int, float] | None = None
        self._chosen: np.ndarray | None = None
        self._cost, self._peak = INFINITY, figures_of(self._graph, self.leanest).peak_bytes

    def run(self) -> None:
        """Add rows until a solution fits; then give back what they count in vain, as long as that helps."""
        seconds = self._round_seconds
        while (left := self._end - time.monotonic()) > 0:
            before = self._cost
            proven = self._round(min(left, seconds))
            if self.best is None and self._chosen is not None:
                # Rows are still missing.
                continue
            if self._cost >= before * (1 - WORTH):
                if proven:
                    return
                # Stopped early, it has found nothing or nothing better.
                seconds *= 2

    def refine(self, program: "DecisionProgram", seconds: float) -> None:
        """Let every value decide for itself, from the best solution so far.

        Args:
            program: Of the same problem.
            seconds: For the solver.
        """
        former, self._program = self._program, program
        program.spare = former.spare
        program.add_rows(list(former.row_of), self._budget)
        if self._start is not None:
            self._start = program.values_of(former, self._start)
        self._round(seconds)

    def _round(self, seconds: float) -> bool:
        """Solve once; was the solution, or that there is none, proven?"""
        if seconds <= 0:
            return False
        self._chosen = None
        solution = solve_binary(self._program.program, time_limit=seconds, threads=self._threads, start=self._start)
        if solution.chosen is None:
            return solution.proven
        schedule = self._program.schedule(self._program.stages_of(solution.chosen))
        self._chosen = solution.chosen
        self._offer(schedule)
        peaks = self._peaks(schedule)
        over = self._over(peaks)
        if over:
            self._program.add_rows(over, self._budget)
        else:
            self._start = {index: float(value) for index, value in enumerate(solution.chosen)}
            self._program.give_back(peaks, solution.chosen, self._budget)
        return solution.proven

    def _offer(self, schedule: Schedule) -> None:
        """Note a schedule, its recomputations moved or not."""
        for each in (schedule, sunk(self._graph, schedule, self._program.boundary)):
            figures = figures_of(self._graph, each)
            if figures.peak_bytes < self._peak:
                self.leanest, self._peak = each, figures.peak_bytes
            if figures.peak_bytes <= self._budget and figures.cost < self._cost:
                self.best, self._cost = each, figures.cost

    def _peaks(self, schedule: Schedule) -> list[int]:
        """Most bytes alive in each stage."""
        peaks = [0] * len(self._graph.names)
        stage = 0
        for node, nbytes in zip(schedule.nodes, memory_curve(self._graph, schedule.nodes), strict=True):
            peaks[stage] = max(nbytes, peaks[stage])
            stage += node == stage
        return peaks

    def _over(self, peaks: list[int]) -> list[int]:
        """The stages that go furthest over the budget, near ones left out."""
        taken: list[int] = []
        apart = max(1, len(peaks) // 200)
        for stage in sorted(range(len(peaks)), key=lambda each: -peaks[each]):
            if peaks[stage] <= self._budget or len(taken) == ROWS_PER_ROUND:
                break
            if all(abs(stage - other) > apart for other in taken):
                taken.append(stage)
        return taken
