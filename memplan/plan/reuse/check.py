"""Checks a placement by walking through time; shares no code with what makes placements."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from memplan.plan.reuse.records import ArenaPlacement, Problem
from memplan.units import Bytes


def problems_of(problem: Problem, placement: ArenaPlacement) -> tuple[str, ...]:
    """Return what is wrong with a placement, in sentences that name the buffers.

    Where several buffers share a byte, some pairs are named, not each.
    """
    if len(placement.offsets) != len(problem.buffers):
        return (f"{len(placement.offsets)} offsets for {len(problem.buffers)} buffers",)
    return (*_misplaced(problem, placement), *_too_high(problem, placement), *_overlaps(problem, placement.offsets))


def contradiction(problem: Problem) -> str | None:
    """Why the buffers of fixed offset cannot lie where they must, if they cannot."""
    fixed = tuple(buffer for buffer in problem.buffers if buffer.offset is not None)
    offsets = tuple(buffer.offset or 0 for buffer in fixed)
    height = max((at + buffer.size for at, buffer in zip(offsets, fixed, strict=True) if buffer.size), default=0)
    return next(iter(problems_of(Problem(buffers=fixed), ArenaPlacement(offsets=offsets, height=Bytes(height)))), None)


def _misplaced(problem: Problem, placement: ArenaPlacement) -> Iterator[str]:
    for buffer, offset in zip(problem.buffers, placement.offsets, strict=True):
        if offset < 0:
            yield f"buffer {buffer.name} begins before the arena, at {offset}"
        if offset % buffer.alignment:
            yield f"buffer {buffer.name} at {offset} is not aligned to {buffer.alignment}"
        if buffer.offset is not None and offset != buffer.offset:
            yield f"buffer {buffer.name} lies at {offset}, and must at {buffer.offset}"


def _too_high(problem: Problem, placement: ArenaPlacement) -> Iterator[str]:
    tops = [(at + b.size, b.name) for at, b in zip(placement.offsets, problem.buffers, strict=True) if b.size]
    highest, name = max(tops, default=(0, ""))
    if highest != placement.height:
        yield f"the height is said to be {placement.height}; buffer {name} ends at {highest}"
    if problem.capacity is not None and highest > problem.capacity:
        yield f"buffer {name} ends at {highest}, above the capacity of {problem.capacity}"


def _overlaps(problem: Problem, offsets: tuple[int, ...]) -> Iterator[str]:
    alive: list[tuple[int, int]] = []
    for _, begins, index in sorted(_moments(problem)):
        entry = offsets[index], index
        place = bisect_left(alive, entry)
        if not begins:
            del alive[place]
            continue
        # Whoever overlaps it among those alive, a neighbour does: up to here the others keep apart, and of those that
        # do not, a pair has been named.
        for other in alive[max(place - 1, 0) : place + 1]:
            low, high = sorted((entry, other))
            if low[0] + problem.buffers[low[1]].size > high[0]:
                yield f"buffers {problem.buffers[other[1]].name} and {problem.buffers[index].name} overlap"
        insort(alive, entry)


def _moments(problem: Problem) -> Iterator[tuple[int, int, int]]:
    """Moment, whether bytes are in use from it on (or no more), buffer: an end comes before a begin at its moment."""
    for index, buffer in enumerate(problem.buffers):
        if not buffer.size:
            continue
        begins = [buffer.start, *(end for _, end in buffer.gaps)]
        ends = [*(start for start, _ in buffer.gaps), buffer.end]
        for start, end in zip(begins, ends, strict=True):
            # A gap at the very start or end of a lifespan leaves nothing before or after it.
            if start < end:
                yield start, 1, index
                yield end, 0, index
