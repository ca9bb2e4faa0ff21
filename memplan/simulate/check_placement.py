"""Checks a placement by walking through time; shares no code with what made it."""

from bisect import bisect_left, insort
from collections.abc import Sequence

from memplan.simulate.placement import Buffer, Placement


def problems_of(buffers: Sequence[Buffer], placement: Placement) -> tuple[str, ...]:
    """What is wrong with a placement, each a sentence; empty if nothing is.

    Args:
        buffers: What was to be placed.
        placement: Where it was put.
    """
    if len(placement.offsets) != len(buffers):
        return (f"{len(placement.offsets)} offsets for {len(buffers)} buffers",)
    found = [f"buffer {index} begins before the arena" for index, low in enumerate(placement.offsets) if low < 0]
    tops = [low + buffer.size for low, buffer in zip(placement.offsets, buffers, strict=True)]
    if max(tops, default=0) > placement.height:
        found.append(f"a buffer ends at {max(tops)}, above the arena's {placement.height}")
    return (*found, *_overlaps(buffers, placement.offsets))


def _overlaps(buffers: Sequence[Buffer], offsets: Sequence[int]) -> list[str]:
    # Ends come before begins at the same moment: lifespans are half-open.
    moments = sorted(
        (moment, begins, i) for i, b in enumerate(buffers) for moment, begins in ((b.start, 1), (b.end, 0))
    )
    alive: list[tuple[int, int]] = []
    found: list[str] = []
    for _, begins, index in moments:
        entry = offsets[index], index
        if not begins:
            alive.remove(entry)
            continue
        place = bisect_left(alive, entry)
        # Whoever overlaps it among those alive, a neighbour does: up to here the others keep apart.
        for other in alive[max(place - 1, 0) : place + 1]:
            low, high = sorted((entry, other))
            if low[0] + buffers[low[1]].size > high[0]:
                found.append(f"buffers {other[1]} and {index} overlap")
        insort(alive, entry)
    return found
