"""A cost that no schedule beats, whatever its order and however often it computes things again.

Look at the moment when node ``v`` is computed for the first time. Every ancestor ``u`` of it has been computed. If
``u`` is also read by a descendant of ``v``, or by ``v`` itself, or is an output, then it is in memory at that moment or
it is computed again later, and then so are, down to what is in memory, its inputs. In symbols, for each ``v`` looked
at::

    here[u, v] + later[u, v] >= 1                                            u wanted after v
    later[u, v] <= here[w, v] + later[w, v]                                  w an input of u
    sum over ancestors of size[u] * here[u, v] <= budget - size[v] - scratch[v]
    later[u, v] <= again[u]

with ``here = 1`` for the inputs of ``v``. The cost of all ``again`` is a lower bound, and so is what a solver proves
about it, even when it is stopped early.
"""

import math
from itertools import accumulate
from typing import TYPE_CHECKING

from memplan.plan.checkpoint.schedule.highs import BinaryProgram, solve_binary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memplan.plan.checkpoint.schedule.records import RematGraph

MOMENTS = 8
"""Moments looked at together, at most: those that ask for most when looked at alone."""
MOST_ANCESTORS = 4_000
"""Of all moments looked at together, unless it is a single one: a larger program takes longer than it is worth."""
INFINITY = float("inf")


def least_extra_cost(graph: "RematGraph", budget: int, *, time_limit: float, threads: int) -> float:
    """Bound what has to be computed again.

    Returns:
        A cost; no schedule within the budget costs less above computing every node once. Infinite if none fits.
    """
    moments = _Moments(graph, budget)
    binding = moments.binding()
    if not binding:
        return 0.0
    program = BinaryProgram()
    again = {node: program.variable(cost) for node, cost in enumerate(graph.costs) if node not in graph.pinned}
    for moment in binding:
        moments.add(program, again, moment)
    bound = solve_binary(program, time_limit=time_limit, threads=threads).bound
    return max(bound, moments.alone(binding[0]))


def greatest_need(graph: "RematGraph", budget: int, *, time_limit: float, threads: int) -> tuple[int, int]:
    """Name the moment that asks for most, where none fits: ``least_extra_cost`` is infinite.

    Returns:
        A node, and the bytes that every schedule takes when it is first computed.
    """
    moments = _Moments(graph, budget)
    needs = {
        moment: moments.least_bytes(moment, time_limit=time_limit, threads=threads) for moment in moments.binding()
    }
    worst = max(needs, key=needs.__getitem__)
    return worst, needs[worst]


class _Moments:
    """First computations of nodes, and what must be alive then."""

    def __init__(self, graph: "RematGraph", budget: int) -> None:
        self._graph, self._budget = graph, budget
        self._room = [
            budget - graph.fixed_bytes - size - (graph.scratch[node] if graph.scratch else 0)
            for node, size in enumerate(graph.sizes)
        ]
        count = len(graph.names)
        self._ancestors = [0] * count
        self._readers = [0] * count
        for node, sources in enumerate(graph.predecessors):
            for source in sources:
                self._ancestors[node] |= self._ancestors[source] | 1 << source
                self._readers[source] |= 1 << node
        self._descendants = [0] * count
        for node in reversed(range(count)):
            for source in graph.predecessors[node]:
                self._descendants[source] |= self._descendants[node] | 1 << node

    def _wanted(self, moment: int) -> list[int]:
        """Ancestors that are needed after the moment."""
        after = self._descendants[moment]
        return [
            node
            for node in _bits(self._ancestors[moment])
            if self._readers[node] & after or node in self._graph.outputs
        ]

    def binding(self) -> list[int]:
        """The moments that cannot keep everything, those first that would have to give up most cost."""
        shares = {moment: self.alone(moment) for moment in range(len(self._room))}
        short = sorted((moment for moment, cost in shares.items() if cost > 0), key=lambda moment: -shares[moment])
        sizes = accumulate(self._ancestors[moment].bit_count() for moment in short)
        few = sum(size <= MOST_ANCESTORS for size in sizes)
        return short[: max(1, min(few, MOMENTS))]

    def alone(self, moment: int) -> float:
        """Cost of the values that a moment cannot keep, by the linear knapsack: a bound by itself."""
        graph, sources = self._graph, set(self._graph.predecessors[moment])
        wanted = [node for node in self._wanted(moment) if node not in sources]
        missing = sum(graph.sizes[node] for node in (*wanted, *sources)) - self._room[moment]
        cost = 0.0
        for node in sorted(wanted, key=lambda node: graph.costs[node] / max(graph.sizes[node], 1)):
            if missing <= 0:
                break
            if node not in graph.pinned:
                cost += graph.costs[node] * min(1.0, missing / max(graph.sizes[node], 1))
                missing -= graph.sizes[node]
        return cost if missing <= 0 else INFINITY

    def add(self, program: BinaryProgram, again: dict[int, int], moment: int) -> None:
        """Add the rows of one moment."""
        graph = self._graph
        here = self._here(program, again, moment, [0.0] * len(graph.sizes))
        unit = max(max(graph.sizes) / 1000, 1e-3)
        sizes = [graph.sizes[node] / unit for node in here]
        program.row(list(here.values()), sizes, -INFINITY, self._room[moment] / unit)

    def least_bytes(self, moment: int, *, time_limit: float, threads: int) -> int:
        """Bytes that any schedule takes at a moment."""
        program, graph = BinaryProgram(), self._graph
        again = {node: program.variable() for node in range(len(graph.sizes)) if node not in graph.pinned}
        self._here(program, again, moment, [float(size) for size in graph.sizes])
        bound = solve_binary(program, time_limit=time_limit, threads=threads).bound
        # The solver's last digits are no bytes.
        return self._budget - self._room[moment] + math.ceil(bound * (1 - 1e-9))

    def _here(
        self, program: BinaryProgram, again: dict[int, int], moment: int, costs: "Sequence[float]"
    ) -> dict[int, int]:
        """Add the rows of one moment without the one of memory; the variables of what is in memory."""
        graph = self._graph
        ancestors = _bits(self._ancestors[moment])
        here = {node: program.variable(costs[node]) for node in ancestors}
        later = {node: program.variable() for node in ancestors if node in again}
        for node, variable in later.items():
            program.row([again[node], variable], [1.0, -1.0], 0.0, INFINITY)
            for source in graph.predecessors[node]:
                there = [table[source] for table in (here, later) if source in table]
                program.row([variable, *there], [1.0] + [-1.0] * len(there), -INFINITY, 0.0)
        for node in self._wanted(moment):
            there = [table[node] for table in (here, later) if node in table]
            program.row(there, [1.0] * len(there), 1.0, INFINITY)
        for node in graph.predecessors[moment]:
            program.row([here[node]], [1.0], 1.0, INFINITY)
        return here


def _bits(number: int) -> list[int]:
    """Positions of the ones."""
    positions = []
    while number:
        lowest = number & -number
        positions.append(lowest.bit_length() - 1)
        number ^= lowest
    return positions
