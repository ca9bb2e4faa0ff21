"""Lower bounds on the height of any placement.

    height ≥ bytes alive at a moment (the load)
           ≥ the same of those whose alignments are multiples of one, each rounded up to it, less the largest padding
           ≥ end of any one buffer, at its fixed offset or at 0

Padding lies between two buffers: the highest needs none.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from memplan.plan.reuse.records import ArenaBuffer, Problem
from memplan.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HeightBound:
    """A height, and why nothing is lower."""

    bytes: Bytes
    """No placement is lower."""
    reason: str
    """In words."""


def lower_bound(problem: Problem) -> HeightBound:
    """The best of what is known without a search.

    Another buffer never lowers it.
    """
    alike: dict[int, list[ArenaBuffer]] = defaultdict(list, {1: []})
    for buffer in problem.buffers:
        alike[buffer.alignment].append(buffer)
    found = [
        _aligned_load([buffer for other in alike if other % alignment == 0 for buffer in alike[other]], alignment)
        for alignment in sorted(alike)
    ]
    found += [_alone(buffer) for buffer in problem.buffers if buffer.size]
    return max(found, key=lambda bound: bound.bytes)


def stretches(buffer: ArenaBuffer) -> Iterator[tuple[int, int]]:
    """Half-open stretches in which a buffer's bytes are its own: its lifespan without its gaps."""
    start = buffer.start
    for gap_start, gap_end in buffer.gaps:
        if start < gap_start:
            yield start, gap_start
        start = gap_end
    if start < buffer.end:
        yield start, buffer.end


def _alone(buffer: ArenaBuffer) -> HeightBound:
    """End of one buffer: gaps in all of its lifespan free its bytes for others, and leave it in the arena."""
    if buffer.offset is None:
        return HeightBound(bytes=Bytes(buffer.size), reason=f"buffer {buffer.name} has {buffer.size} bytes")
    return HeightBound(
        bytes=Bytes(buffer.offset + buffer.size), reason=f"buffer {buffer.name} must lie at {buffer.offset}"
    )


def _aligned_load(buffers: Sequence[ArenaBuffer], alignment: int) -> HeightBound:
    """Most bytes at once between the first and the last byte of buffers that all begin at multiples of ``alignment``.

    Each is followed by padding up to the next multiple, but for the highest: at best that with the most padding.
    """
    most = load = 0
    moment = 0
    paddings: list[tuple[int, int]] = []
    for at, padded, padding, until in sorted(_moments(buffers, lambda size: -(-size // alignment) * alignment)):
        load += padded
        if padded < 0:
            continue
        heapq.heappush(paddings, (-padding, until))
        while paddings[0][1] <= at:
            heapq.heappop(paddings)
        if load + paddings[0][0] > most:
            most, moment = load + paddings[0][0], at
    aligned = f", each at a multiple of {alignment}," if alignment > 1 else ""
    return HeightBound(bytes=Bytes(most), reason=f"buffers{aligned} need {most:,} bytes at moment {moment}")


def _moments(buffers: Sequence[ArenaBuffer], padded: Callable[[int], int]) -> Iterator[tuple[int, int, int, int]]:
    """Moment, bytes that come or go (those that go first), padding among them, last moment."""
    for buffer in buffers:
        if not buffer.size:
            continue
        size = padded(buffer.size)
        for start, end in stretches(buffer):
            yield start, size, size - buffer.size, end
            yield end, -size, 0, end
