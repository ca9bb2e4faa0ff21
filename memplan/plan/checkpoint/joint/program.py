"""The decisions about a joint graph as a program of zeros and ones; ``lazy`` says what they are and solves it."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from memplan.plan.checkpoint.graph.highs import BinaryProgram
from memplan.plan.checkpoint.graph.problem import ordered, useful
from memplan.plan.checkpoint.graph.records import RematGraph, Schedule
from memplan.plan.checkpoint.joint.repeats import representatives
from memplan.plan.checkpoint.joint.segments import segments

if TYPE_CHECKING:
    import numpy as np

INFINITY = float("inf")
LATER_COSTS_MORE = 1e-4
"""What is computed again early in forward is needed again late, when there is room: equal blocks differ by this."""
EVERY_COPY_COSTS = 1e-6
"""Of the whole cost, shared by all values: nothing is computed again without need, even where it costs nothing."""
AHEAD = 2
"""Segments, its own included, whose entry in backward is a stage in which a value may be computed again."""


@dataclass(slots=True, kw_only=True)
class _Terms:
    """A memory row in the making."""

    sizes: dict[int, int] = field(default_factory=dict)
    """Bytes by variable."""

    def add(self, variable: int, size: int) -> None:
        """Count a value if its variable is one."""
        self.sizes[variable] = self.sizes.get(variable, 0) + size


class DecisionProgram:
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

    def values_of(self, other: "DecisionProgram", chosen: "dict[int, float]") -> dict[int, float]:
        """A solution of another program of the same problem in this one's variables."""
        return {
            variable: chosen[theirs[node][event]]
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
                self.program.row(
                    list(terms.sizes), [size / unit for size in terms.sizes.values()], -INFINITY, room / unit
                )
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
