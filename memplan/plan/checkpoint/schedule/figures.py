"""The figures of a schedule: its peak, where that is, and its cost.

The memory model, for a schedule ``s`` of positions ``0..T-1``: the value computed at ``j`` is alive from ``j`` to its
last use before it is computed again (an output's last one to the end), both included; the scratch of a node only at its
own position.
"""

from itertools import accumulate

from memplan.plan.checkpoint.schedule.records import RematGraph, Schedule, ScheduleFigures
from memplan.units import Bytes


def figures_of(graph: RematGraph, schedule: Schedule) -> ScheduleFigures:
    """Work out peak (``fixed_bytes`` included), its position and cost of a valid schedule (``check.py`` tells)."""
    curve = memory_curve(graph, schedule.nodes)
    peak = max(curve, default=graph.fixed_bytes)
    return ScheduleFigures(
        peak_bytes=Bytes(peak),
        peak_at=curve.index(peak) if curve else 0,
        cost=float(sum(graph.costs[node] for node in schedule.nodes)),
    )


def memory_curve(graph: RematGraph, nodes: tuple[int, ...]) -> list[int]:
    """Bytes alive at each position of a schedule, ``fixed_bytes`` and the node's scratch included."""
    changes = [0] * (len(nodes) + 1)
    changes[0] = graph.fixed_bytes
    for start, (node, end) in enumerate(zip(nodes, last_uses(graph, nodes), strict=True)):
        changes[start] += graph.sizes[node]
        changes[end + 1] -= graph.sizes[node]
    curve = list(accumulate(changes[:-1]))
    if graph.scratch:
        curve = [nbytes + graph.scratch[node] for nbytes, node in zip(curve, nodes, strict=True)]
    return curve


def last_uses(graph: RematGraph, nodes: tuple[int, ...]) -> list[int]:
    """For each position, the last one that needs the value computed there: its own where nothing uses it."""
    computed_at: dict[int, int] = {}
    ends = list(range(len(nodes)))
    for position, node in enumerate(nodes):
        for source in graph.predecessors[node]:
            ends[computed_at[source]] = position
        computed_at[node] = position
    for output in graph.outputs:
        ends[computed_at[output]] = len(nodes) - 1
    return ends


def unplanned(graph: RematGraph) -> Schedule:
    """Every node once, in the order of the graph."""
    return Schedule(nodes=tuple(range(len(graph.names))))
