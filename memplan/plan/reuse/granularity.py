"""The granularity of offsets: all those of some lowest placement are multiples of it, which leaves less to search."""

import math

from memplan.plan.reuse.records import ArenaBuffer, Problem


def grain_of(problem: Problem) -> int:
    """The greatest number of bytes in which sizes, fixed offsets and the offsets of settled buffers can be counted.

    A settled buffer lies at 0 or on top of others, rounded up to its alignment: its offset is a sum of sizes and fixed
    offsets. An alignment that divides the grain rounds nothing, and one that is a multiple of it rounds to multiples.
    """
    buffers = [buffer for buffer in problem.buffers if buffer.size]
    grain = math.gcd(*(number for buffer in buffers for number in (buffer.size, buffer.offset or 0))) or 1
    while others := [buffer.alignment for buffer in buffers if not _fits(buffer, grain)]:
        grain = math.gcd(grain, *others)
    return grain


def _fits(buffer: ArenaBuffer, grain: int) -> bool:
    return grain % buffer.alignment == 0 or buffer.alignment % grain == 0
