"""A solution improved piece by piece: large-neighbourhood search.

A few segments of forward decide anew while all others stay as they are: a program that is solved in a fraction of a
second, where the whole one would not end. Segments are taken in a row, or drawn: what one gives up another may take. As
many are taken as the time for one program allows.
"""

import time
from random import Random

from memplan.plan.checkpoint.ops.solve.best_schedules import BestSchedules
from memplan.plan.checkpoint.ops.solve.memory_rows import MemoryRows
from memplan.plan.checkpoint.schedule.highs import solve_binary

FEWEST = 2
"""Segments that decide together, at least."""
PIECE_SHARE = 0.05
"""Of the time, that one program may take."""
QUICK = 0.3
"""Of that, in which a program is solved whose like may be larger."""
GROWTH = 1.1
"""Of their size."""


def improve(rows: MemoryRows, values: dict[int, float], met: BestSchedules, *, time_limit: float, threads: int) -> None:
    """Look for cheaper schedules around one.

    Every value decides for itself in the program of the rows; the schedule of the solution fits.
    """
    _Pieces(rows, values, met, threads).run(time_limit)


class _Pieces:
    """One solution and the programs of its pieces."""

    def __init__(self, rows: MemoryRows, values: dict[int, float], met: BestSchedules, threads: int) -> None:
        self._rows, self._program, self._met, self._threads = rows, rows.decisions, met, threads
        self._random = Random(0)  # noqa: S311 - no secrets here
        self._of_segment = self._program.variables_of_segments()
        self._size = float(FEWEST)
        self._keep(values)

    def _keep(self, values: dict[int, float]) -> None:
        self._values, self._cost = values, self._program.cost(values)
        self._taken = self._met.taken(self._program.schedule(self._program.stages_of(values)))
        self._rows.give_back(self._taken, values)

    def run(self, time_limit: float) -> None:
        """Solve piece after piece, until the time is over or the whole is proven."""
        end = time.monotonic() + time_limit
        while (left := end - time.monotonic()) > 0:
            piece = self._piece()
            begin, limit = time.monotonic(), min(left, PIECE_SHARE * time_limit)
            proven = self._solve(set().union(*(self._of_segment[each] for each in piece)), limit)
            if not proven:
                self._size = max(FEWEST, self._size / GROWTH)
            elif len(piece) == len(self._of_segment):
                return
            elif time.monotonic() - begin < QUICK * limit:
                self._size *= GROWTH

    def _piece(self) -> list[int]:
        count = len(self._of_segment)
        size = min(count, int(self._size))
        if self._random.random() < 0.5:
            return self._random.sample(range(count), size)
        first = self._random.randrange(count - size + 1)
        return list(range(first, first + size))

    def _solve(self, free: set[int], seconds: float) -> bool:
        """Solve one piece; is there nothing better in it?"""
        solution = solve_binary(
            self._program.program, time_limit=seconds, threads=self._threads, start=self._values, free=free
        )
        if solution.chosen is None:
            return solution.proven
        values = {index: float(value) for index, value in enumerate(solution.chosen)}
        schedule = self._program.schedule(self._program.stages_of(values))
        self._met.offer(schedule)
        over = self._met.over(self._met.taken(schedule))
        if over:
            self._rows.add(over)
            # The solution that stands fits, whatever the rows say.
            self._rows.give_back(self._taken, self._values)
            return False
        if self._program.cost(values) < self._cost:
            self._keep(values)
        return solution.proven
