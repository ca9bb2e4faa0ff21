"""Recomputations moved to where they are first used."""

from memplan.plan.checkpoint.schedule.records import RematGraph, Schedule


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
