"""Bytes on their way to the host and back, as two fluid queues of the link's bandwidth.

What a block offloads joins the queue outward when its forward ends and is on the device until copied; what its backward
needs is on the device from the moment it is fetched. Copies outward start at once, copies back as late as they can.
Where forward turns into backward the queue outward is empty, and copies back start there::

    outward[p + 1] = offloaded by p      + max(0, outward[p] - room(p))
    inward[p - 1]  = needed back by p    + max(0, inward[p]  - room(p))        room(p) = bandwidth * (seconds + stall)

Tensors leave and come one by one, so that a block's bytes are freed bit by bit; a block's ``backward_peak_bytes``
already counts what it needs itself. Runs again would give copies more time; they are left out.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

from memplan.plan.checkpoint.block.records import BlockProblem, Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlogs:
    """Bytes under way at each position."""

    outward: tuple[int, ...]
    """Offloaded before the position and not copied yet when it starts."""
    inward: tuple[int, ...]
    """Needed after the position and fetched until it ends."""
    late_bytes: int
    """Bytes that are under way where forward turns into backward; above 0 the choice cannot run."""


def turns(problem: BlockProblem) -> frozenset[int]:
    """Positions of backwards that follow a forward."""
    runs = [(at, position.phase) for at, position in enumerate(problem.positions) if position.block is not None]
    return frozenset(at for (_, before), (at, phase) in pairwise(runs) if before == "forward" and phase == "backward")


def offloads(problem: BlockProblem) -> bool:
    """May some block wait on the host?"""
    return any(option.offloaded_bytes for block in problem.blocks for option in block.options)


def backlogs(problem: BlockProblem, choice: Choice) -> Backlogs:
    """Follow both queues under a choice.

    Args:
        problem: The step and its blocks.
        choice: Options and stalls.

    Returns:
        Bytes under way, rounded up.
    """
    count = len(problem.positions)
    sent, needed = [0] * count, [0] * count
    for block, option in zip(problem.blocks, choice.options, strict=True):
        for forward, backward in block.spans:
            sent[forward] += block.options[option].offloaded_bytes
            needed[backward] += block.options[option].offloaded_bytes
    if not any(sent):
        return Backlogs(outward=(0,) * count, inward=(0,) * count, late_bytes=0)
    stalls = choice.stalls or (0.0,) * count
    rooms = [
        problem.host_link_bandwidth * (position.seconds + stall)
        for position, stall in zip(problem.positions, stalls, strict=True)
    ]
    outward = _queue(sent, rooms)
    inward = _queue(needed[::-1], rooms[::-1])[::-1]
    late = max(max(outward[at], inward[at - 1] if at else 0.0) for at in turns(problem))
    return Backlogs(outward=_up(outward), inward=_up(inward), late_bytes=_up([late])[0])


def _queue(joining: list[int], rooms: list[float]) -> list[float]:
    """What waits at the start of each step, given what joins at the end of each and how much each can take."""
    waiting = [0.0]
    for join, room in zip(joining[:-1], rooms[:-1], strict=True):
        waiting.append(join + max(0.0, waiting[-1] - room))
    return waiting


def _up(sizes: list[float]) -> tuple[int, ...]:
    """Whole bytes; a thousandth of a byte is rounding of the queue's own arithmetic."""
    return tuple(math.ceil(size - 1e-3) for size in sizes)
