"""Memory rows of a program of decisions: what may be alive when one node is computed in one stage."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate

from memplan.plan.checkpoint.ops.solve.decisions import DecisionProgram

INFINITY = float("inf")
Moment = tuple[int, int]
"""A stage, and the node that is computed in it: its own, or one that is computed again for it."""


class MemoryRows:
    """The rows that a program has got so far, for a budget that includes ``fixed_bytes``."""

    def __init__(self, decisions: DecisionProgram, budget: int) -> None:
        self.decisions = decisions
        self._graph, self._budget = decisions.graph, budget
        self._scratch = self._graph.scratch or (0,) * len(self._graph.names)
        self._unit = max(max(self._graph.sizes) / 1000, 1e-3)
        self._row_of: dict[Moment, int] = {}
        self._terms: dict[Moment, dict[int, int]] = {}
        self._always = self._alive_always()

    @property
    def places(self) -> list[Moment]:
        """The moments that have a row."""
        return list(self._row_of)

    def add(self, places: Iterable[Moment]) -> None:
        """Give moments at which a solution takes more than the budget a row each."""
        program = self.decisions.program
        for place in places:
            if place in self._row_of:
                # What was given back for another solution was too much.
                program.upper[self._row_of[place]] = self._room(place)
                continue
            terms = self._terms[place] = self._alive_maybe(place)
            self._row_of[place] = len(program.lower)
            scaled = [size / self._unit for size in terms.values()]
            program.row(list(terms), scaled, -INFINITY, self._room(place))

    def give_back(self, taken: dict[Moment, int], values: dict[int, float]) -> None:
        """Correct the rows by what they count in vain for a solution that fits and takes so much at each moment."""
        for place, row in self._row_of.items():
            # What a row says of a computation that there is not must not keep the solution out.
            vain = max(0, self.counted(place, values) - taken.get(place, self._budget))
            self.decisions.program.upper[row] = self._room(place) + vain / self._unit

    def counted(self, place: Moment, values: dict[int, float]) -> int:
        """Bytes that a moment's row counts for a solution; no fewer than are alive then."""
        terms = self._terms[place]
        return self._always_at(place) + sum(size for variable, size in terms.items() if values[variable])

    def _room(self, place: Moment) -> float:
        return (self._budget - self._always_at(place)) / self._unit

    def _alive_always(self) -> list[int]:
        """Bytes alive in each stage whatever is chosen, of forward's values only while forward reads them."""
        graph, decisions = self._graph, self.decisions
        changes = [0] * (len(graph.names) + 1)
        changes[0] = graph.fixed_bytes
        for node, readers in enumerate(decisions.readers):
            last = len(graph.names) - 1 if node in graph.outputs else max((node, *readers))
            if node in decisions.events and node not in graph.outputs:
                last = max((node, *(reader for reader in readers if reader <= decisions.boundary)))
            changes[node] += graph.sizes[node]
            changes[last + 1] -= graph.sizes[node]
        return [nbytes + extra for nbytes, extra in zip(accumulate(changes[:-1]), self._scratch, strict=True)]

    def _always_at(self, place: Moment) -> int:
        stage, at = place
        graph, events = self._graph, self.decisions.events
        if stage <= self.decisions.boundary:
            return self._always[stage]
        if at == stage:
            # What it reads is there, kept or computed again.
            read = (source for source in graph.predecessors[stage] if source in events and source not in graph.outputs)
            return self._always[stage] + sum(graph.sizes[source] for source in read)
        return self._always[stage] - graph.sizes[stage] - self._scratch[stage]

    def _alive_maybe(self, place: Moment) -> dict[int, int]:
        """Bytes by the variable that says whether they are alive."""
        stage, at = place
        terms: dict[int, int] = {}
        for node in self.decisions.events:
            if node < stage and node not in self._graph.outputs:
                own = self._in_backward(node, stage, at) if stage > self.decisions.boundary else self._kept(node, stage)
                extra = self._scratch[node] if node == at else 0
                for variable in own:
                    # Equal blocks may share a variable.
                    terms[variable] = terms.get(variable, 0) + self._graph.sizes[node] + extra
        return terms

    def _kept(self, node: int, stage: int) -> list[int]:
        """For a stage of forward: is a value that forward reads no more kept for backward?"""
        decisions = self.decisions
        if any(stage <= reader <= decisions.boundary for reader in decisions.readers[node]):
            return []
        return [decisions.kept[node][decisions.events[node][0]]]

    def _in_backward(self, node: int, stage: int, at: int) -> list[int]:
        """For a node that is computed in a stage of backward: what says whether a value is alive then?"""
        decisions = self.decisions
        kept, events = decisions.kept[node], decisions.events[node]
        again = [decisions.again[node][stage]] if stage in decisions.again[node] else []
        before, after = bisect_left(events, stage), bisect_right(events, stage)
        if at == stage and stage in decisions.readers[node]:
            return []
        if node == at:
            return again
        if node > at or self._may_be_read(node, stage, at):
            return [kept[event] for event in events[before : before + 1]] + (again if node < at else [])
        return [kept[event] for event in events[after : after + 1]]

    def _may_be_read(self, node: int, stage: int, at: int) -> bool:
        """May something that is computed in a stage, from one node on, read a value?"""
        again = self.decisions.again
        readers = self.decisions.readers[node]
        return any(reader == stage or (reader >= at and stage in again.get(reader, ())) for reader in readers)
