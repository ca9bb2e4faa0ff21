"""The best schedules found so far, and the moments at which one of them is over the budget."""

from memplan.plan.checkpoint.ops.solve.memory_rows import Moment
from memplan.plan.checkpoint.schedule.figures import figures_of, memory_curve, unplanned
from memplan.plan.checkpoint.schedule.records import RematGraph, Schedule

INFINITY = float("inf")
ROWS_PER_ROUND = 12
"""Moments that are named at once."""
APART = 200
"""Of the nodes, one in this many lies between two moments that are named."""


class BestSchedules:
    """The cheapest schedule found that fits, and the one of the lowest peak.

    The budget includes ``fixed_bytes``.
    """

    def __init__(self, graph: RematGraph, boundary: int, budget: int) -> None:
        self._graph, self._boundary, self._budget = graph, boundary, budget
        self.best: Schedule | None = None
        """The cheapest that fits."""
        self.cost = INFINITY
        """Of the best one."""
        self.leanest = unplanned(graph)
        """The one of the lowest peak."""
        self._peak = figures_of(graph, self.leanest).peak_bytes

    def offer(self, schedule: Schedule) -> None:
        """Keep a schedule, its recomputations moved or not, if it is cheaper or has a lower peak."""
        for each in (schedule, sunk(self._graph, schedule, self._boundary)):
            figures = figures_of(self._graph, each)
            if figures.peak_bytes < self._peak:
                self.leanest, self._peak = each, figures.peak_bytes
            if figures.peak_bytes <= self._budget and figures.cost < self.cost:
                self.best, self.cost = each, figures.cost

    def taken(self, schedule: Schedule) -> dict[Moment, int]:
        """Bytes alive at each computation of a schedule."""
        taken: dict[Moment, int] = {}
        stage = 0
        for node, nbytes in zip(schedule.nodes, memory_curve(self._graph, schedule.nodes), strict=True):
            taken[stage, node] = nbytes
            stage += node == stage
        return taken

    def over(self, taken: dict[Moment, int]) -> list[Moment]:
        """The moments that go furthest over the budget, near ones left out."""
        found: list[Moment] = []
        apart = max(1, len(self._graph.names) // APART)
        for place in sorted(taken, key=lambda each: -taken[each]):
            if taken[place] <= self._budget or len(found) == ROWS_PER_ROUND:
                break
            if all(abs(place[0] - stage) > apart for stage, _ in found):
                found.append(place)
        return found


def sunk(graph: RematGraph, schedule: Schedule, boundary: int) -> Schedule:
    """Move what is computed again after a boundary to just before its first use, at the same cost."""
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
