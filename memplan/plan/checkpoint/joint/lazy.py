"""Schedules of large joint graphs: what is dropped in forward is computed again when backward first asks for it.

The stages are the ops of backward in their order; before each runs what is computed again for it. In a gradient's order
almost everything that a schedule can gain lies in few decisions per value ``i`` of forward::

    kept[i, k]      i stays in memory up to its event k: an op of backward that reads it, or that asks for it indirectly
    again[i, t]     i is computed again in stage t: the first event, or an event that reads i itself

That is about four variables per value, however long chains get: a chain of values that all miss is computed in the stage
where backward first asks for its end. Memory is looked at exactly, on the schedule that a solution means; a stage that
takes too much gets a row, corrected by what such a row counts in vain, and the program is solved again.
"""

import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from memplan.plan.checkpoint.graph.figures import figures_of, memory_curve, unplanned
from memplan.plan.checkpoint.graph.highs import BinaryProgram, solve_binary
from memplan.plan.checkpoint.graph.problem import ordered, useful
from memplan.plan.checkpoint.graph_records import RematGraph, Schedule
from memplan.plan.checkpoint.joint.repeats import representatives

if TYPE_CHECKING:
    import numpy as np

INFINITY = float("inf")
TRIES = 1
"""Solutions in a row that are no better, after which the search ends."""
WORTH = 1e-4
"""Of the cost, that a better solution saves at least."""
ROWS_PER_ROUND = 12
"""Stages that get a row in one round."""
LATER_COSTS_MORE = 1e-4
"""What is computed again early in forward is needed again late, when there is room: equal blocks differ by this."""
EVERY_COPY_COSTS = 1e-6
"""Of the whole cost, shared by all values: nothing is computed again without need, even where it costs nothing."""
AHEAD = 2
"""Segments, its own included, whose entry in backward is a stage in which a value may be computed again."""
NEAR = 6
"""Ops on either side of a cut between segments over which no less may go."""
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
    search = _Search(_Program(graph, boundary, alike=True), budget, time_limit * ALIKE_SHARE, threads)
    search.run()
    single = _Program(graph, boundary, alike=False)
    if search.best is not None and len(single.program.costs) <= MOST_VARIABLES:
        search.refine(single, time_limit - (time.monotonic() - begin))
    return search.best, search.leanest


class _Search:
    """Programs solved one after the other, each with the rows that the one before has missed."""

    def __init__(self, program: "_Program", budget: int, time_limit: float, threads: int) -> None:
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
        tries = 0
        while tries < TRIES:
            before = self._cost
            if not self._round(min(self._end - time.monotonic(), self._round_seconds)):
                return
            tries += self.best is not None and self._cost > before * (1 - WORTH)

    def refine(self, program: "_Program", seconds: float) -> None:
        """Let every value decide for itself, from the best solution so far.

        Args:
            program: Of the same problem.
            seconds: For the solver.
        """
        if self._chosen is not None:
            former, self._program = self._program, program
            self._start = program.values_of(former, self._chosen)
            program.spare = former.spare
            program.add_rows(list(former.row_of), self._budget)
            self._round(seconds)

    def _round(self, seconds: float) -> bool:
        """Solve once; False: nothing was found."""
        if seconds <= 0:
            return False
        solution = solve_binary(self._program.program, time_limit=seconds, threads=self._threads, start=self._start)
        if solution.chosen is None:
            return False
        schedule = self._program.schedule(self._program.stages_of(solution.chosen))
        before = self._cost
        self._offer(schedule)
        peaks = self._peaks(schedule)
        over = self._over(peaks)
        if over:
            self._program.add_rows(over, self._budget)
        else:
            self._start = {index: float(value) for index, value in enumerate(solution.chosen)}
            self._program.give_back(peaks, solution.chosen, self._budget)
        if self._cost < before:
            self._chosen = solution.chosen
        return True

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


@dataclass(slots=True, kw_only=True)
class _Terms:
    """A memory row in the making."""

    sizes: dict[int, int] = field(default_factory=dict)
    """Bytes by variable."""

    def add(self, variable: int, size: int) -> None:
        """Count a value if its variable is one."""
        self.sizes[variable] = self.sizes.get(variable, 0) + size


class _Program:
    """The program without memory rows, its variables by what they mean.

    Args:
        graph: The problem.
        boundary: The node between forward and backward.
        alike: Shall repeated blocks decide in groups?
    """

    def __init__(self, graph: RematGraph, boundary: int, *, alike: bool) -> None:
        self.graph, self.boundary = graph, boundary
        self.program = BinaryProgram()
        self.readers: list[list[int]] = [[] for _ in graph.names]
        for node, sources in enumerate(graph.predecessors):
            for source in sources:
                self.readers[source].append(node)
        segment, entries = segments(graph, boundary, self.readers)
        self.stages: dict[int, list[int]] = {}
        self.events: dict[int, list[int]] = {}
        self._times(segment, entries)
        self.kept: dict[int, dict[int, int]] = {}
        self.again: dict[int, dict[int, int]] = {}
        self._variables(representatives(graph, segment) if alike else range(boundary))
        self.rows: set[tuple[tuple[int, ...], float]] = set()
        for node in self.events:
            self._keep(node)
        for node in range(len(graph.names)):
            self._supply(node)
        self.row_of: dict[int, int] = {}
        self.spare: dict[int, int] = {}
        self.always = self._always()

    def _times(self, segment: list[int], entries: dict[int, int]) -> None:
        """Events of each value of forward, and the stages in which it may be computed again."""
        first: dict[int, int] = {}
        for node in reversed(range(self.boundary)):
            direct = {reader for reader in self.readers[node] if reader > self.boundary}
            asking = [reader for reader in self.readers[node] if reader in self.stages]
            events = direct.union(*(self.stages[reader] for reader in asking))
            if not events:
                continue
            if direct:
                first[node] = min(direct)
            own = {stage for ahead in range(AHEAD) if (stage := entries.get(segment[node] + ahead)) in events}
            nearby = {first[reader] for reader in asking if reader in first}
            self.events[node] = sorted(events)
            if node not in self.graph.pinned:
                self.stages[node] = sorted(direct | own | nearby)

    def _variables(self, deciders: Sequence[int]) -> None:
        """Variables of each value, or those of the value that decides for it, event by event."""
        graph, each_copy = self.graph, EVERY_COPY_COSTS * sum(self.graph.costs) / max(1, len(self.graph.names))
        for node in sorted(self.events):
            events, stages = self.events[node], self.stages.get(node, [])
            other = deciders[node]
            if other == node or self._pattern(node) != self._pattern(other):
                self.kept[node] = {event: self.program.variable() for event in events}
                self.again[node] = {stage: self.program.variable() for stage in stages}
            else:
                self.kept[node] = dict(zip(events, self.kept[other].values(), strict=True))
                self.again[node] = dict(zip(stages, self.again[other].values(), strict=True))
            cost = graph.costs[node] * (1 + LATER_COSTS_MORE * node / self.boundary) + each_copy
            for variable in self.again[node].values():
                self.program.costs[variable] += cost

    def _pattern(self, node: int) -> list[bool]:
        """Which of its events may compute a value again."""
        return [event in self.stages.get(node, ()) for event in self.events.get(node, ())]

    def _row(self, indices: list[int], signs: list[float], lower: float, upper: float) -> None:
        """Add a row, once."""
        key = (*indices, len(indices)), lower
        if key not in self.rows:
            self.rows.add(key)
            self.program.row(indices, signs, lower, upper)

    def _always(self) -> list[int]:
        """Bytes alive in each stage whatever is chosen."""
        graph = self.graph
        changes = [0] * (len(graph.names) + 1)
        changes[0] = graph.fixed_bytes
        for node, readers in enumerate(self.readers):
            last = len(graph.names) - 1 if node in graph.outputs else max((node, *readers))
            if node in self.events and node not in graph.outputs:
                last = max((node, *(reader for reader in readers if reader <= self.boundary)))
            changes[node] += graph.sizes[node]
            changes[last + 1] -= graph.sizes[node]
        scratch = graph.scratch or (0,) * len(graph.names)
        return [nbytes + extra for nbytes, extra in zip(accumulate(changes[:-1]), scratch, strict=True)]

    def _keep(self, node: int) -> None:
        again = self.again[node]
        for before, after in pairwise(self.events[node]):
            sources = [self.kept[node][before], *([again[before]] if before in again else [])]
            self._row([self.kept[node][after], *sources], [1.0] + [-1.0] * len(sources), -INFINITY, 0.0)

    def _supply(self, node: int) -> None:
        for source in self.graph.predecessors[node]:
            if source not in self.events:
                continue
            if node > self.boundary:
                there = self._there(source, node)
                self._row(there, [1.0] * len(there), 1.0, INFINITY)
            for stage, again in self.again.get(node, {}).items():
                there = self._there(source, stage)
                self._row([again, *there], [1.0] + [-1.0] * len(there), -INFINITY, 0.0)

    def _there(self, node: int, stage: int) -> list[int]:
        again = self.again[node]
        return [self.kept[node][stage], *([again[stage]] if stage in again else [])]

    def stages_of(self, chosen: "np.ndarray") -> list[list[int]]:
        """What a solution computes again in each stage."""
        stages: list[list[int]] = [[] for _ in self.graph.names]
        for node in sorted(self.again):
            for stage, variable in self.again[node].items():
                if chosen[variable]:
                    stages[stage].append(node)
        return stages

    def values_of(self, other: "_Program", chosen: "np.ndarray") -> dict[int, float]:
        """A solution of another program of the same problem in this one's variables."""
        return {
            variable: float(chosen[theirs[node][event]])
            for ours, theirs in ((self.kept, other.kept), (self.again, other.again))
            for node, table in ours.items()
            for event, variable in table.items()
        }

    def schedule(self, stages: list[list[int]]) -> Schedule:
        """The schedule of a solution, without what nothing reads."""
        problem = ordered(self.graph, range(len(self.graph.names)))
        nodes = Schedule(nodes=tuple(node for stage, again in enumerate(stages) for node in (*again, stage)))
        return problem.schedule(useful(problem, problem.numbers(nodes)))

    def add_rows(self, over: Iterable[int], budget: int) -> None:
        """Give stages a memory row each.

        Args:
            over: Stages that take more than they may.
            budget: Bytes that each may take.
        """
        unit = max(max(self.graph.sizes) / 1000, 1e-3)
        for stage in over:
            terms = self._terms(stage)
            room = budget + self.spare.get(stage, 0) - self.always[stage]
            row = self.row_of.setdefault(stage, len(self.program.lower))
            if row == len(self.program.lower):
                self.program.row(list(terms.sizes), [size / unit for size in terms.sizes.values()], -INFINITY, room / unit)
            else:
                self.program.upper[row] = room / unit

    def give_back(self, peaks: list[int], chosen: "np.ndarray", budget: int) -> None:
        """Correct the rows by what they count in vain for a solution.

        Args:
            peaks: Bytes that it takes in each stage.
            chosen: The solution.
            budget: Bytes that each stage may take.
        """
        for stage in self.row_of:
            terms = self._terms(stage)
            counted = sum(size for variable, size in terms.sizes.items() if chosen[variable])
            self.spare[stage] = max(0, counted + self.always[stage] - peaks[stage])
        self.add_rows(list(self.row_of), budget)

    def _terms(self, stage: int) -> _Terms:
        """What of forward may be alive in a stage, as if all that is computed again in it stayed to its end."""
        graph, terms = self.graph, _Terms()
        for node, events in self.events.items():
            if node >= stage or node in graph.outputs:
                continue
            if stage <= self.boundary:
                if not any(stage <= reader <= self.boundary for reader in self.readers[node]):
                    terms.add(self.kept[node][events[0]], graph.sizes[node])
                continue
            if stage <= events[-1]:
                terms.add(self.kept[node][events[bisect_left(events, stage)]], graph.sizes[node])
            if stage in self.again[node]:
                terms.add(self.again[node][stage], graph.sizes[node] + (graph.scratch[node] if graph.scratch else 0))
        return terms


def segments(graph: RematGraph, boundary: int, readers: list[list[int]]) -> tuple[list[int], dict[int, int]]:
    """Cut forward where little goes from one side to the other: between blocks, around residual connections.

    Args:
        graph: The problem.
        boundary: End of forward.
        readers: Who reads each node.

    Returns:
        The segment of each node of forward, and for each segment the first op of backward that reads a value of it.
    """
    changes = [0] * (boundary + 1)
    for node in range(boundary):
        last = max((reader for reader in readers[node] if reader < boundary), default=node)
        changes[node] += graph.sizes[node]
        changes[last] -= graph.sizes[node]
    crossing = list(accumulate(changes))
    segment, number = [], 0
    for node in range(boundary):
        segment.append(number)
        # Of equal minima the last one cuts.
        before, after = crossing[max(0, node - NEAR) : node], crossing[node + 1 : node + 1 + NEAR]
        number += all(crossing[node] <= other for other in before) and all(crossing[node] < other for other in after)
    entries: dict[int, int] = {}
    for node in range(boundary):
        for reader in readers[node]:
            if reader > boundary:
                entries[segment[node]] = min(reader, entries.get(segment[node], reader))
    return segment, entries


def sunk(graph: RematGraph, schedule: Schedule, boundary: int) -> Schedule:
    """Move what is computed again to just before its first use.

    Args:
        graph: The problem.
        schedule: A valid schedule.
        boundary: Nothing before it moves.

    Returns:
        A valid schedule of the same cost.
    """
    cut = schedule.nodes.index(boundary)
    late: list[int] = []
    done = set(schedule.nodes[: cut + 1])
    held: dict[int, bool] = {}

    def emit(node: int) -> None:
        for source in graph.predecessors[node]:
            if held.pop(source, False):
                emit(source)
        late.append(node)

    for node in schedule.nodes[cut + 1 :]:
        if node in done and node < boundary:
            if held.get(node):
                emit(node)
            held[node] = True
        else:
            emit(node)
            done.add(node)
    return Schedule(nodes=(*schedule.nodes[: cut + 1], *late))
