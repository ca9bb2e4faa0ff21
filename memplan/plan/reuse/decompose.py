"""A problem that falls apart: between two moments that no buffer crosses, nothing needs to know of the rest.

      ▲ ┌──┐        │ ┌─────┐
      │ │  │┌─────┐ │ │     │
      │ └──┘└─────┘ │ └─────┘
      └─────────────┴──────────► time
                   cut

Each part has its own placement from 0 on; the arena is as high as the highest.
"""

from collections.abc import Sequence
from dataclasses import replace

from memplan.plan.reuse.bound import stretches
from memplan.plan.reuse.records import ArenaBuffer, ArenaPlacement, Problem
from memplan.units import Bytes


def sections_of(problem: Problem) -> tuple[tuple[int, ...], ...]:
    """Indices of the buffers of each part, in order of time; buffers without a byte of their own are in none."""
    spans = {index: tuple(stretches(buffer)) for index, buffer in enumerate(problem.buffers) if buffer.size}
    hulls = [(found[0][0], found[-1][1], index) for index, found in spans.items() if found]
    found: list[list[int]] = []
    last = 0
    for start, end, index in sorted(hulls):
        if not found or start >= last:
            found.append([])
        found[-1].append(index)
        last = end if len(found[-1]) == 1 else max(last, end)
    return tuple(tuple(section) for section in found)


def part_of(problem: Problem, section: Sequence[int]) -> Problem:
    """The problem of some of the buffers."""
    return replace(problem, buffers=tuple(problem.buffers[index] for index in section))


def joined(
    problem: Problem,
    sections: Sequence[Sequence[int]],
    parts: Sequence[ArenaPlacement],
    rest: ArenaPlacement | None = None,
) -> ArenaPlacement:
    """One placement of what was placed part by part.

    ``rest`` is where all others lie; None: there are none that have bytes.
    """
    offsets = [buffer.offset or 0 for buffer in problem.buffers] if rest is None else list(rest.offsets)
    for section, part in zip(sections, parts, strict=True):
        for index, offset in zip(section, part.offsets, strict=True):
            offsets[index] = offset
    return placed(problem.buffers, offsets)


def placed(buffers: Sequence[ArenaBuffer], offsets: Sequence[int]) -> ArenaPlacement:
    """Offsets with the height that they come to."""
    tops = (offset + buffer.size for offset, buffer in zip(offsets, buffers, strict=True) if buffer.size)
    return ArenaPlacement(offsets=tuple(offsets), height=Bytes(max(tops, default=0)))
