"""Copies to the host and back, simulated on clocks: two queues beside the computation.

Every block's copy is one job on a first-in-first-out link, with a start and an end in seconds. It judges the fluid
queue and the waits that solvers reckon with, and shares nothing with them.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One copy of one block's bytes to the host."""

    block: int
    """Whose bytes."""
    nbytes: int
    """How many."""
    position: int
    """Whose end releases it."""
    start: float
    """Seconds since the start of the step."""
    end: float
    """Seconds since the start of the step."""

    def done_bytes(self, at: float) -> float:
        """Bytes copied until a moment."""
        if at >= self.end:
            return self.nbytes
        return 0.0 if at <= self.start else self.nbytes * (at - self.start) / (self.end - self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """A step's copies, and when its positions run."""

    outward: tuple[Job, ...]
    """To the host, in order."""
    ends: tuple[float, ...]
    """When each position ends, its stall included."""
    turns: tuple[int, ...]
    """Positions at which forward turns into backward."""
    waits: tuple[float, ...]
    """Seconds that each position waits for copies back."""
    ahead: tuple[int, ...]
    """Bytes that each position finds on the device for a later backward, or puts there."""

    def start_of(self, position: int) -> float:
        """When a position starts."""
        return self.ends[position - 1] if position else 0.0

    def under_way(self, position: int) -> int:
        """Bytes that are still on the device at the position's start."""
        begin = self.start_of(position)
        leaving = sum(job.nbytes - job.done_bytes(begin) for job in self.outward if job.position < position)
        return math.ceil(leaving - 1e-3)

    def late(self) -> tuple[Job, ...]:
        """Copies that end after the first backward that follows them."""
        late = []
        for job in self.outward:
            turn = self.turns[bisect_right(self.turns, job.position)]
            if job.nbytes - job.done_bytes(self.start_of(turn)) > 1e-3:
                late.append(job)
        return tuple(late)


def simulate(problem: BlockProblem, choice: BlockChoice) -> Transfers:
    """Lay every copy of a choice on the clock.

    Args:
        problem: The step; its ``host_link_bandwidth`` is above 0.
        choice: Options and stalls.
    """
    stalls = choice.stalls or (0.0,) * len(problem.positions)
    ends = tuple(accumulate(p.seconds + stall for p, stall in zip(problem.positions, stalls, strict=True)))
    wanted = [
        (span, index, block.options[option].offloaded_bytes)
        for index, (block, option) in enumerate(zip(problem.blocks, choice.options, strict=True))
        for span in block.spans
        if block.options[option].offloaded_bytes
    ]
    outward: list[Job] = []
    free = 0.0
    for (forward, _), block, nbytes in sorted(wanted):
        start = max(free, ends[forward])
        free = start + nbytes / problem.host_link_bandwidth
        outward.append(Job(block=block, nbytes=nbytes, position=forward, start=start, end=free))
    runs = sorted((at, kind) for block in problem.blocks for span in block.spans for kind, at in enumerate(span))
    turns = [at for place, (at, kind) in enumerate(runs) if kind == 1 and runs[place - 1][1] == 0]
    waits, ahead = _inward(problem, choice)
    return Transfers(outward=tuple(outward), ends=ends, turns=tuple(turns), waits=waits, ahead=ahead)


def _inward(problem: BlockProblem, choice: BlockChoice) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Let the step run, and its copies back on a queue of their own: what each position waits, and holds too early."""
    sizes = {
        span: block.options[option].offloaded_bytes
        for block, option in zip(problem.blocks, choice.options, strict=True)
        for span in block.spans
        if block.options[option].offloaded_bytes
    }
    asked: dict[tuple[int, int], float] = {}
    now = free = 0.0
    waits, ahead = [], []

    def ask(span: tuple[int, int]) -> None:
        nonlocal free
        free = max(free, now) + sizes[span] / problem.host_link_bandwidth
        asked[span] = free

    for at, position in enumerate(problem.positions):
        began = now
        for span in [span for span in sizes if span[1] == at]:
            if span not in asked:
                ask(span)
            to_come = [other for other in sizes if other[0] < span[0] and other[1] > at]
            if choice.prefetch and to_come and max(to_come) not in asked:
                ask(max(to_come))
            now = max(now, asked[span])
        waits.append(now - began)
        ahead.append(sum(sizes[span] for span in asked if span[1] > at))
        now += position.seconds
        if position.block is not None and position.phase == "backward":
            block = problem.blocks[position.block]
            now += block.options[choice.options[position.block]].seconds / len(block.spans)
    return tuple(waits), tuple(ahead)
