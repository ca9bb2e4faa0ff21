"""Where forward is cut: between blocks and around residual connections, where little goes across."""

from itertools import accumulate

from memplan.plan.checkpoint.graph.records import RematGraph

NEAR = 6
"""Ops on either side of a cut between segments over which no less may go."""


def segments(graph: RematGraph, boundary: int, readers: list[list[int]]) -> tuple[list[int], dict[int, int]]:
    """Cut forward where little goes from one side to the other: between blocks, around residual connections.

    Args:
        graph: The problem.
        boundary: End of forward.
        readers: Who reads each node.

    Returns:
        The segment of each node of forward, and for each the first op of backward that reads a value of it.
    """
    changes = [0] * (boundary + 1)
    for node in range(boundary):
        last = max((reader for reader in readers[node] if reader < boundary), default=node)
        changes[node] += graph.sizes[node]
        changes[last] -= graph.sizes[node]
    crossing = list(accumulate(changes))
    segment, number = [], 0
    for node in range(boundary):
        segment.append(number)
        # Of equal minima the last one cuts.
        before, after = crossing[max(0, node - NEAR) : node], crossing[node + 1 : node + 1 + NEAR]
        number += all(crossing[node] <= other for other in before) and all(crossing[node] < other for other in after)
    entries: dict[int, int] = {}
    for node in range(boundary):
        # What all blocks read (rotary positions, masks) does not say where backward enters its segment.
        if any(segment[reader] > segment[node] + 1 for reader in readers[node] if reader < boundary):
            continue
        for reader in readers[node]:
            if reader > boundary:
                entries[segment[node]] = min(reader, entries.get(segment[node], reader))
    return segment, entries
