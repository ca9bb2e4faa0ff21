"""The decisions about a joint graph as a program of zeros and ones; ``lazy`` says what they are and solves it."""

from collections.abc import Sequence
from itertools import pairwise

from memplan.plan.checkpoint.ops.solve.segments import representatives, segments
from memplan.plan.checkpoint.schedule.highs import BinaryProgram
from memplan.plan.checkpoint.schedule.ordered import ordered, useful
from memplan.plan.checkpoint.schedule.records import RematGraph, Schedule, readers_of

INFINITY = float("inf")
LATER_COSTS_MORE = 1e-4
"""What is computed again early in forward is needed again late, when there is room: equal blocks differ by this."""
EVERY_COPY_COSTS = 1e-6
"""Of the whole cost, shared by all values: nothing is computed again without need, even where it costs nothing."""
AHEAD = 2
"""Segments, its own included, whose entry in backward is a stage in which a value may be computed again."""


class DecisionProgram:
    """The program without memory rows, its variables by what they mean.

    With ``alike`` repeated blocks decide in groups.
    """

    def __init__(self, graph: RematGraph, boundary: int, *, alike: bool) -> None:
        self.graph, self.boundary = graph, boundary
        self.program = BinaryProgram()
        self.readers = readers_of(graph.predecessors)
        self.segment, entries = segments(graph, boundary, self.readers)
        self.stages: dict[int, list[int]] = {}
        self.events: dict[int, list[int]] = {}
        self._times(self.segment, entries)
        self.kept: dict[int, dict[int, int]] = {}
        self.again: dict[int, dict[int, int]] = {}
        self.later: dict[int, int] = {}
        self._variables(representatives(graph, self.segment) if alike else range(boundary))
        self._rows: set[tuple[tuple[int, ...], float]] = set()
        for node in self.events:
            self._keep(node)
        for node in range(len(graph.names)):
            self._supply(node)
        self._derive()

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
                if stages:
                    self.later[node] = self.program.variable()
            else:
                self.kept[node] = dict(zip(events, self.kept[other].values(), strict=True))
                self.again[node] = dict(zip(stages, self.again[other].values(), strict=True))
                if stages:
                    self.later[node] = self.later[other]
            cost = graph.costs[node] * (1 + LATER_COSTS_MORE * node / self.boundary) + each_copy
            for variable in self.again[node].values():
                self.program.costs[variable] += cost

    def _pattern(self, node: int) -> list[bool]:
        """Return for each event of a value whether it may be computed again there."""
        return [event in self.stages.get(node, ()) for event in self.events.get(node, ())]

    def _row(self, indices: list[int], signs: list[float], lower: float, upper: float) -> None:
        """Add a row, once."""
        key = (*indices, len(indices)), lower
        if key not in self._rows:
            self._rows.add(key)
            self.program.row(indices, signs, lower, upper)

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

    def _derive(self) -> None:
        """Rows that whole numbers imply: what is computed again needs inputs that were kept or are computed again."""
        for node, later in self.later.items():
            stages = list(self.again[node].values())
            for again in stages:
                self._row([again, later], [1.0, -1.0], -INFINITY, 0.0)
            self._row([later, *stages], [1.0] + [-1.0] * len(stages), -INFINITY, 0.0)
            for source in self.graph.predecessors[node]:
                if source in self.events:
                    there = self._ever(source)
                    self._row([later, *there], [1.0] + [-1.0] * len(there), -INFINITY, 0.0)
        for node in self.events:
            if any(reader > self.boundary for reader in self.readers[node]):
                there = self._ever(node)
                self._row(there, [1.0] * len(there), 1.0, INFINITY)

    def _ever(self, node: int) -> list[int]:
        first = self.kept[node][self.events[node][0]]
        return [first, *([self.later[node]] if node in self.later else [])]

    def _there(self, node: int, stage: int) -> list[int]:
        again = self.again[node]
        return [self.kept[node][stage], *([again[stage]] if stage in again else [])]

    def stages_of(self, values: dict[int, float]) -> list[list[int]]:
        """Return what a solution computes again in each stage."""
        stages: list[list[int]] = [[] for _ in self.graph.names]
        for node in sorted(self.again):
            for stage, variable in self.again[node].items():
                if values[variable]:
                    stages[stage].append(node)
        return stages

    def cost(self, values: dict[int, float]) -> float:
        """Of a solution."""
        return sum(cost * values[variable] for variable, cost in enumerate(self.program.costs))

    def variables_of_segments(self) -> list[list[int]]:
        """The variables that each segment decides, where every value decides for itself."""
        found: list[list[int]] = [[] for _ in range(max(self.segment, default=0) + 1)]
        for node in self.events:
            later = [self.later[node]] if node in self.later else []
            found[self.segment[node]] += [*self.kept[node].values(), *self.again[node].values(), *later]
        return [variables for variables in found if variables]

    def values_of(self, other: "DecisionProgram", chosen: "dict[int, float]") -> dict[int, float]:
        """A solution of another program of the same problem in this one's variables."""
        return {
            variable: chosen[theirs[node][event]]
            for ours, theirs in ((self.kept, other.kept), (self.again, other.again))
            for node, table in ours.items()
            for event, variable in table.items()
        } | {variable: chosen[other.later[node]] for node, variable in self.later.items()}

    def schedule(self, stages: list[list[int]]) -> Schedule:
        """The schedule of a solution, without what nothing reads."""
        problem = ordered(self.graph, range(len(self.graph.names)))
        nodes = Schedule(nodes=tuple(node for stage, again in enumerate(stages) for node in (*again, stage)))
        return problem.schedule(useful(problem, problem.numbers(nodes)))
