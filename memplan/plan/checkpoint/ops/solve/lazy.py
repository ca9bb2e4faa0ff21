"""Schedules of large joint graphs: what is dropped in forward is computed again when backward first asks for it.

The stages are the ops of backward in their order; before each runs what is computed again for it. In a gradient's order
almost everything that a schedule can gain lies in few decisions per value ``i`` of forward::

    kept[i, k]      i stays in memory up to its event k: an op of backward that reads it, or that asks for it indirectly
    again[i, t]     i is computed again in stage t: where backward enters its segment or the next one (``segments``),
                    where it is read itself, or where a reader of it is

That is a handful of variables per value, however long chains get: a chain of values that all miss is computed where
backward enters its segment. A third one, ``later[i]``, says that ``i`` is computed again at all, and that its inputs
are then kept or computed again, too: whole numbers imply that, but without it a solver's fractions come up with a value
by computing a part of it several times.

Equal blocks decide in groups first (``segments``), then every one for itself: a few segments of forward
decide anew while all others stay as they are, a program that is solved in a fraction of a second, where the whole one
would not end. Segments are taken in a row, or drawn: what one gives up another may take. As many are taken as the time
for one program allows. Memory is looked at exactly, on the schedule that a solution means; a moment that takes too much
gets a row, and the program is solved again. What a row counts in vain for a solution is given back.
"""

import time
from random import Random

from memplan.plan.checkpoint.ops.solve.best_schedules import BestSchedules
from memplan.plan.checkpoint.ops.solve.decisions import DecisionProgram
from memplan.plan.checkpoint.ops.solve.memory_rows import MemoryRows
from memplan.plan.checkpoint.schedule.highs import solve_binary
from memplan.plan.checkpoint.schedule.records import RematGraph, Schedule

GROUPS_SHARE = 0.4
"""Of the time, for equal blocks that decide in groups, once a solution fits."""
ROUND_SHARE = 0.15
"""Of the time, that one of their programs may take at first."""
WORTH = 1e-4
"""Of the cost, that a better solution saves at least."""
FEWEST = 2
"""Segments that decide together, at least."""
PIECE_SHARE = 0.05
"""Of the time, that one program may take."""
QUICK = 0.3
"""Of that, in which a program is solved whose like may be larger."""
GROWTH = 1.1
"""Of their size."""


def lazy_schedule(
    graph: RematGraph, boundary: int, budget: int, *, time_limit: float, threads: int
) -> tuple[Schedule | None, Schedule]:
    """Look for a cheap schedule in the graph's order.

    Nodes after the boundary are computed once; the budget includes ``fixed_bytes``.

    Returns:
        The cheapest schedule found that fits, or None, and the one of the lowest peak.
    """
    end = time.monotonic() + time_limit
    met = BestSchedules(graph, boundary, budget)
    alike = MemoryRows(DecisionProgram(graph, boundary, alike=True), budget)
    values = _in_groups(alike, met, time_limit=end - time.monotonic(), threads=threads)
    if values is not None:
        single = MemoryRows(DecisionProgram(graph, boundary, alike=False), budget)
        single.add(alike.places)
        own = single.decisions.values_of(alike.decisions, values)
        improve(single, own, met, time_limit=end - time.monotonic(), threads=threads)
    return met.best, met.leanest


def _in_groups(rows: MemoryRows, met: BestSchedules, *, time_limit: float, threads: int) -> dict[int, float] | None:
    """Solve a program again and again, with the rows that it has missed, as long as that finds something better.

    Returns:
        The best solution whose schedule fits; None: none was found in time.
    """
    end, seconds = time.monotonic() + time_limit, ROUND_SHARE * time_limit
    program = rows.decisions
    best: dict[int, float] | None = None
    while (left := end - time.monotonic()) > 0 and (best is None or left > (1 - GROUPS_SHARE) * time_limit):
        solution = solve_binary(program.program, time_limit=min(left, seconds), threads=threads, start=best)
        if solution.chosen is None:
            if solution.proven:
                return best
            seconds *= 2
            continue
        values = {index: float(value) for index, value in enumerate(solution.chosen)}
        schedule = program.schedule(program.stages_of(values))
        met.offer(schedule)
        taken = met.taken(schedule)
        over = met.over(taken)
        if over:
            rows.add(over)
            continue
        if best is not None and program.cost(values) >= program.cost(best) * (1 - WORTH):
            if solution.proven:
                return best
        else:
            best = values
            rows.give_back(taken, best)
        # Stopped early, it begins anew from what it has found.
        seconds *= 1 if solution.proven else 2
    return best


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
