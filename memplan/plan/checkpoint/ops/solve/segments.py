"""Where forward is cut: between blocks and around residual connections, where little goes across."""

from collections.abc import Sequence
from itertools import accumulate

from memplan.plan.checkpoint.schedule.records import RematGraph

NEAR = 6
"""Ops on either side of a cut over which no less may go."""


def narrows(crossing: Sequence[int], begin: int, end: int) -> list[int]:
    """Places at which less goes across than at those around; of equal ones in a row the last.

    They are looked for from node ``begin`` to before ``end``.
    """
    found = []
    for node in range(begin, end):
        before, after = crossing[max(begin, node - NEAR) : node], crossing[node + 1 : min(end, node + 1 + NEAR)]
        if all(crossing[node] <= other for other in before) and all(crossing[node] < other for other in after):
            found.append(node)
    return found


def segments(graph: RematGraph, boundary: int, readers: list[list[int]]) -> tuple[list[int], dict[int, int]]:
    """Cut forward where little goes from one side to the other: between blocks, around residual connections.

    Returns:
        The segment of each node of forward, and for each the first op of backward that reads a value of it.
    """
    changes = [0] * (boundary + 1)
    for node in range(boundary):
        last = max((reader for reader in readers[node] if reader < boundary), default=node)
        changes[node] += graph.sizes[node]
        changes[last] -= graph.sizes[node]
    cuts = set(narrows(list(accumulate(changes)), 0, boundary + 1))
    segment = [0] * boundary
    for node in range(1, boundary):
        segment[node] = segment[node - 1] + (node - 1 in cuts)
    entries: dict[int, int] = {}
    for node in range(boundary):
        # What all blocks read (rotary positions, masks) does not say where backward enters its segment.
        if any(segment[reader] > segment[node] + 1 for reader in readers[node] if reader < boundary):
            continue
        for reader in readers[node]:
            if reader > boundary:
                entries[segment[node]] = min(reader, entries.get(segment[node], reader))
    return segment, entries
