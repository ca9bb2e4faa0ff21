"""Bytes on their way to the host and back, and the waiting for them.

What a block offloads joins the queue when its forward ends and is on the device until copied. Copies start at once;
where forward turns into backward the queue is empty::

    outward[p + 1] = offloaded by p + max(0, outward[p] - room(p))        room(p) = bandwidth * (seconds + stall)

Tensors leave one by one, so that a block's bytes are freed bit by bit: a fluid queue of the link's bandwidth. Runs
again would give copies more time; they are left out.

They come back when their block's backward first asks (``memplan.runtime.checkpoint.offload``), and a choice may fetch
ahead: then each offloaded block also asks for the one whose backward comes next. Two engines, one that computes and one
that copies::

    compute   │ wait │ backward of 3 │ … of 2 │ wait │ … of 1 │ … of 0 │       1 and 3 are offloaded
    copy      │  3   │  1                            │

When a block's wait is over its own copy is done, and that of the next one begins: no more than one is ever under way.
So each wait is what the copy takes beyond all that is computed from the backward before it on; of the first one, and
without fetching ahead of each, it is the whole copy. The option's ``backward_peak_bytes`` count its own bytes; those of
the next one are on the device from this backward on (``Fetches.ahead``).
"""

import math
from collections.abc import Sequence
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetches:
    """Copies back under a choice, position by position."""

    ahead: tuple[int, ...]
    """Bytes of the next offloaded block that are on the device already."""
    waits: tuple[float, ...]
    """Seconds that a backward waits for its own bytes before it computes."""


def backward_rows(problem: BlockProblem) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return rows of backwards (block, position) that come in the reverse order of their forwards.

    Each may fetch ahead for the next one of its row: what runs forward after a backward begins a new row.
    """
    runs = sorted((*span, index) for index, block in enumerate(problem.blocks) for span in block.spans)
    rows: list[list[tuple[int, int]]] = []
    for _, backward, block in runs:
        if not rows or rows[-1][-1][1] < backward:
            rows.append([])
        rows[-1].append((block, backward))
    return tuple(tuple(reversed(row)) for row in rows)


def fetches(problem: BlockProblem, choice: BlockChoice, seconds: Sequence[float]) -> Fetches:
    """Follow what comes back under a choice.

    ``seconds`` is what each position computes, runs again included.
    """
    ahead, waits = [0] * len(problem.positions), [0.0] * len(problem.positions)
    for row in backward_rows(problem):
        before: int | None = None
        for block, at in row:
            nbytes = problem.blocks[block].options[choice.options[block]].offloaded_bytes
            if not nbytes:
                continue
            waits[at] = nbytes / problem.host_link_bandwidth if problem.host_link_bandwidth else 0.0
            if before is not None and choice.prefetch:
                waits[at] = max(0.0, waits[at] - sum(seconds[before:at]))
                ahead[before:at] = [waiting + nbytes for waiting in ahead[before:at]]
            before = at
    return Fetches(ahead=tuple(ahead), waits=tuple(waits))


def computing_seconds(problem: BlockProblem, choice: BlockChoice) -> list[float]:
    """Return what each position computes under a choice, runs again of blocks included, those of segments not."""
    seconds = [position.seconds for position in problem.positions]
    for block, option in zip(problem.blocks, choice.options, strict=True):
        for _, backward in block.spans:
            seconds[backward] += block.options[option].seconds / len(block.spans)
    return seconds


def backlogs(problem: BlockProblem, choice: BlockChoice) -> Backlogs:
    """Follow the queue under a choice, its stalls included; bytes under way are rounded up."""
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
