"""Bytes on their way to the host, as a fluid queue of the link's bandwidth, and what copies back cost.

What a block offloads joins the queue when its forward ends and is on the device until copied. Copies start at once;
where forward turns into backward the queue is empty::

    outward[p + 1] = offloaded by p + max(0, outward[p] - room(p))        room(p) = bandwidth * (seconds + stall)

Tensors leave one by one, so that a block's bytes are freed bit by bit. They come back when their block's backward first
asks, by the stream that computes (``memplan.runtime.checkpoint.offload``): nothing hides that, so that an option's
``seconds`` count all of it, and its ``backward_peak_bytes`` what it needs. Runs again would give copies more time; they
are left out.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlogs:
    """Bytes under way at each position."""

    outward: tuple[int, ...]
    """Offloaded before the position and not copied yet when it starts."""
    late_bytes: int
    """Bytes that are under way where forward turns into backward; above 0 the choice cannot run."""


def turns(problem: BlockProblem) -> frozenset[int]:
    """Positions of backwards that follow a forward."""
    runs = [(at, position.phase) for at, position in enumerate(problem.positions) if position.block is not None]
    return frozenset(at for (_, before), (at, phase) in pairwise(runs) if before == "forward" and phase == "backward")


def offloads(problem: BlockProblem) -> bool:
    """May some block wait on the host?"""
    return any(option.offloaded_bytes for block in problem.blocks for option in block.options)


def seconds_back(nbytes: int, bandwidth: float) -> float:
    """Return the seconds of copying so many bytes back, during which nothing is computed."""
    return nbytes / bandwidth if nbytes and bandwidth else 0.0


def bytes_back(problem: BlockProblem, choice: BlockChoice) -> int:
    """All that a step copies back under a choice."""
    pairs = zip(problem.blocks, choice.options, strict=True)
    return sum(block.options[option].offloaded_bytes * len(block.spans) for block, option in pairs)


def backlogs(problem: BlockProblem, choice: BlockChoice) -> Backlogs:
    """Follow the queue under a choice.

    Args:
        problem: The step and its blocks.
        choice: Options and stalls.

    Returns:
        Bytes under way, rounded up.
    """
    count = len(problem.positions)
    sent = [0] * count
    for block, option in zip(problem.blocks, choice.options, strict=True):
        for forward, _ in block.spans:
            sent[forward] += block.options[option].offloaded_bytes
    if not any(sent):
        return Backlogs(outward=(0,) * count, late_bytes=0)
    stalls = choice.stalls or (0.0,) * count
    rooms = [
        problem.host_link_bandwidth * (position.seconds + stall)
        for position, stall in zip(problem.positions, stalls, strict=True)
    ]
    outward = _queue(sent, rooms)
    late = max(outward[at] for at in turns(problem))
    return Backlogs(outward=_up(outward), late_bytes=_up([late])[0])


def _queue(joining: list[int], rooms: list[float]) -> list[float]:
    """Return what waits at the start of each step, given what joins at the end of each and how much each can take."""
    waiting = [0.0]
    for join, room in zip(joining[:-1], rooms[:-1], strict=True):
        waiting.append(join + max(0.0, waiting[-1] - room))
    return waiting


def _up(sizes: list[float]) -> tuple[int, ...]:
    """Whole bytes; a thousandth of a byte is rounding of the queue's own arithmetic."""
    return tuple(math.ceil(size - 1e-3) for size in sizes)
