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

from typing import TYPE_CHECKING

from memplan.plan.checkpoint.graph.highs import BinaryProgram, solve_binary

if TYPE_CHECKING:
    from memplan.plan.checkpoint.graph_records import RematGraph

MOMENTS = 8
"""Moments looked at together: those that ask for most when looked at alone."""
INFINITY = float("inf")


def least_extra_cost(graph: "RematGraph", budget: int, *, time_limit: float, threads: int) -> float:
    """Bound what has to be computed again.

    Args:
        graph: The problem.
        budget: Bytes that may be alive at once.
        time_limit: Seconds for the solver.
        threads: Of the solver.

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
    return solve_binary(program, time_limit=time_limit, threads=threads).bound


class _Moments:
    """First computations of nodes, and what must be alive then."""

    def __init__(self, graph: "RematGraph", budget: int) -> None:
        self._graph = graph
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
        shares = {moment: self._give_up(moment) for moment in range(len(self._room))}
        short = [moment for moment, cost in shares.items() if cost > 0]
        return sorted(short, key=lambda moment: -shares[moment])[:MOMENTS]

    def _give_up(self, moment: int) -> float:
        """Cost of the values that a moment cannot keep, by the linear knapsack."""
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
        graph, sources = self._graph, set(self._graph.predecessors[moment])
        ancestors = _bits(self._ancestors[moment])
        here = {node: program.variable() for node in ancestors}
        later = {node: program.variable() for node in ancestors if node in again}
        for node, variable in later.items():
            program.row([again[node], variable], [1.0, -1.0], 0.0, INFINITY)
            for source in graph.predecessors[node]:
                there = [table[source] for table in (here, later) if source in table]
                program.row([variable, *there], [1.0] + [-1.0] * len(there), -INFINITY, 0.0)
        for node in self._wanted(moment):
            there = [table[node] for table in (here, later) if node in table]
            program.row(there, [1.0] * len(there), 1.0, INFINITY)
        for node in sources:
            program.row([here[node]], [1.0], 1.0, INFINITY)
        unit = max(max(graph.sizes) / 1000, 1e-3)
        sizes = [graph.sizes[node] / unit for node in ancestors]
        program.row([here[node] for node in ancestors], sizes, -INFINITY, self._room[moment] / unit)


def _bits(number: int) -> list[int]:
    """Positions of the ones."""
    positions = []
    while number:
        lowest = number & -number
        positions.append(lowest.bit_length() - 1)
        number ^= lowest
    return positions
