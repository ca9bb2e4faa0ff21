"""A cost that no schedule of a joint graph beats, whatever its order and however often it computes things again.

Look at the moment when an op ``v`` of backward runs for the first time. Everything of forward that ops after ``v`` read
is in memory then, or is computed again later, and then so is, down to what is in memory, all that it reads::

    here[u] + later[u] >= 1                      u read by v or by a descendant of v
    later[u] <= here[w] + later[w]               w an input of u
    here[w] = 1                                  w an input of v
    sum of size[u] * here[u] <= budget - what v and its fixed surroundings take

The cost of all ``later`` is a lower bound, and so is what a solver proves about it when it is stopped early.
"""

from typing import TYPE_CHECKING

from memplan.plan.checkpoint.schedule.figures import memory_curve
from memplan.plan.checkpoint.schedule.highs import BinaryProgram, solve_binary

if TYPE_CHECKING:
    from memplan.plan.checkpoint.schedule.records import RematGraph

INFINITY = float("inf")


def least_again(graph: "RematGraph", boundary: int, budget: int, *, time_limit: float, threads: int) -> float:
    """Bound what has to be computed again in backward.

    Returns:
        A cost; no schedule within the budget costs less above computing every node once. Infinite if none fits.
    """
    curve = memory_curve(graph, tuple(range(len(graph.names))))
    moment = max(range(boundary, len(curve)), key=curve.__getitem__)
    program = _program(graph, boundary, moment, budget)
    return solve_binary(program, time_limit=time_limit, threads=threads).bound


def _program(graph: "RematGraph", boundary: int, moment: int, budget: int) -> BinaryProgram:
    program = BinaryProgram()
    ancestors = _ancestors(graph, moment)
    forward = sorted(node for node in ancestors if node < boundary)
    here = {node: program.variable() for node in forward}
    later = {node: program.variable(graph.costs[node]) for node in forward if node not in graph.pinned}
    for node, variable in later.items():
        for source in graph.predecessors[node]:
            there = _there(source, here, later)
            program.row([variable, *there], [1.0] + [-1.0] * len(there), -INFINITY, 0.0)
    for node in _wanted(graph, moment, boundary) & here.keys():
        there = _there(node, here, later)
        program.row(there, [1.0] * len(there), 1.0, INFINITY)
    for node in {source for source in graph.predecessors[moment] if source in here}:
        program.row([here[node]], [1.0], 1.0, INFINITY)
    unit = max(max(graph.sizes) / 1000, 1e-3)
    room = budget - graph.fixed_bytes - graph.sizes[moment] - (graph.scratch[moment] if graph.scratch else 0)
    # Ancestors in backward that the moment reads or that are results take their bytes too.
    also = {node for node in ancestors if node > boundary}
    room -= sum(graph.sizes[node] for node in also & ({*graph.predecessors[moment]} | graph.outputs))
    program.row(list(here.values()), [graph.sizes[node] / unit for node in here], -INFINITY, room / unit)
    return program


def _there(node: int, here: dict[int, int], later: dict[int, int]) -> list[int]:
    return [table[node] for table in (here, later) if node in table]


def _ancestors(graph: "RematGraph", moment: int) -> set[int]:
    found: set[int] = set()
    waiting = list(graph.predecessors[moment])
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += graph.predecessors[node]
    return found


def _wanted(graph: "RematGraph", moment: int, boundary: int) -> set[int]:
    """Return what the moment and its descendants read, and forward's results."""
    after = {moment}
    for node in range(moment + 1, len(graph.names)):
        if any(source in after for source in graph.predecessors[node]):
            after.add(node)
    return {source for node in after for source in graph.predecessors[node]} | {
        node for node in graph.outputs if node < boundary
    }
