"""Where forward is cut (between blocks, where little goes across), and which of its blocks repeat and decide alike.

A transformer's blocks are equal, so a plan for forty of them has forty times the decisions of one and no end of
solutions that differ by which block does what. Here blocks in a row form groups that decide as one. Groups get smaller
towards the end, so that any number of blocks, nearly, can do one thing and the rest another; what is computed again in
early blocks serves more of the step (later blocks' memory is free by then), so the order loses little.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from memplan.plan.checkpoint.schedule.records import RematGraph

if TYPE_CHECKING:
    import numpy as np


NEAR = 6
"""Ops on either side of a cut over which no less may go."""
GROUP_SHARE = 3
"""A group takes one block in this many of those left."""
LEAST_BLOCK = 4
"""Ops of the smallest block looked for: shorter repetitions are a few equal ops in a row."""


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


def representatives(graph: RematGraph, segment: Sequence[int]) -> list[int]:
    """For each node of forward, the node that decides for it.

    Returns:
        A node of the same kind in the first block of its group; the node itself outside of repeated blocks.
    """
    import numpy as np

    kinds: dict[tuple[object, ...], int] = {}
    codes = np.array([kinds.setdefault(_kind(graph, node), len(kinds)) for node in range(len(segment))])
    result = list(range(len(segment)))
    waiting = [(0, len(segment))]
    while waiting:
        begin, end = waiting.pop()
        found = _longest(codes[begin:end])
        if found is None:
            continue
        period, first, length = found
        first += begin
        last = first + length
        start = next((node for node in range(first, last) if node == 0 or segment[node] != segment[node - 1]), first)
        _group(result, start, period, (last - start) // period)
        waiting += [(begin, first), (last, end)]
    return result


def _kind(graph: RematGraph, node: int) -> tuple[object, ...]:
    scratch = graph.scratch[node] if graph.scratch else 0
    return graph.sizes[node], graph.costs[node], scratch, node in graph.pinned, len(graph.predecessors[node])


def _longest(codes: "np.ndarray") -> tuple[int, int, int] | None:
    """Period, begin and length of the longest stretch that repeats itself; of equal ones the shortest period."""
    import numpy as np

    best: tuple[int, int, int] | None = None
    for period in range(LEAST_BLOCK, len(codes) // 2 + 1):
        differs = np.flatnonzero(codes[:-period] != codes[period:])
        ends = np.concatenate(([-1], differs, [len(codes) - period]))
        runs = np.diff(ends) - 1
        longest = int(runs.argmax())
        length = int(runs[longest])
        if length >= period and (best is None or length + period > best[2]):
            best = period, int(ends[longest]) + 1, length + period
    return best


def _group(result: list[int], start: int, period: int, blocks: int) -> None:
    block = 0
    while block < blocks:
        size = -(-(blocks - block) // GROUP_SHARE)
        for member in range(block, block + size):
            for offset in range(period):
                result[start + member * period + offset] = start + block * period + offset
        block += size
