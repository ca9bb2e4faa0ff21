"""What others make of the same buffers: no solver of memplan's in here."""

import heapq
from collections import Counter
from collections.abc import Sequence

from memplan.plan.reuse.records import ArenaBuffer


def exact_size_reuse(buffers: Sequence[ArenaBuffer]) -> int:
    """Bytes that Inductor's default takes: a buffer takes a dead one's place if both have the same size.

    ``torch/_inductor/codegen/wrapper.py`` (``buffer_reuse_key``, ``allow_buffer_reuse``), whose key is device, dtype
    and size; here size alone.
    """
    free: Counter[int] = Counter()
    alive: list[tuple[int, int]] = []
    taken = 0
    for buffer in sorted(buffers, key=lambda buffer: buffer.start):
        while alive and alive[0][0] <= buffer.start:
            free[heapq.heappop(alive)[1]] += 1
        if free[buffer.size]:
            free[buffer.size] -= 1
        else:
            taken += buffer.size
        heapq.heappush(alive, (buffer.end, buffer.size))
    return taken


def greedy_by_size(buffers: Sequence[ArenaBuffer]) -> int:
    """Height that TFLite's "greedy by size for offset calculation" reaches (Pisarchyk and Lee 2020, algorithm 3)."""
    placed: list[tuple[int, ArenaBuffer]] = []
    height = 0
    for buffer in sorted(buffers, key=lambda buffer: -buffer.size):
        met = [(at, other) for at, other in placed if other.start < buffer.end and buffer.start < other.end]
        best, smallest, end = None, 0, 0
        for at, other in sorted(met, key=lambda pair: pair[0]):
            gap = at - end
            if gap >= buffer.size and (best is None or gap < smallest):
                best, smallest = end, gap
            end = max(end, at + other.size)
        offset = end if best is None else best
        placed.append((offset, buffer))
        height = max(height, offset + buffer.size)
    return height
