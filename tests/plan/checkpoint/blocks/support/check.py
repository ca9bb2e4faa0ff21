"""Judges a choice: its shape, its copies, its memory and its price. Shares no code with any solver."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem
from memplan.runtime.checkpoint.records import Action
from memplan.units import Bytes, format_bytes
from tests.plan.checkpoint.blocks.support.transfers import simulate
from tests.plan.checkpoint.blocks.support.walk import Walk

Reason = Literal[
    "options_missing",
    "unknown_option",
    "not_a_chain",
    "segment_range",
    "segments_cross",
    "segment_order",
    "segment_action",
    "no_link",
    "copy_late",
    "host_full",
    "over_budget",
    "seconds_wrong",
]
_INSIDE = (Action.KEEP, Action.CHECKPOINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One thing that is wrong with a choice."""

    reason: Reason
    """Its name."""
    text: str
    """One sentence: what, where, by how much."""


def check(
    problem: BlockProblem, choice: BlockChoice, budget: Bytes, *, seconds: float | None = None
) -> tuple[Violation, ...]:
    """Judge a choice.

    Args:
        problem: The step and its blocks.
        choice: What is to be judged.
        budget: Bytes that may be alive at most.
        seconds: Extra time that the choice is said to cost; None: nothing is said.

    Returns:
        Everything that is wrong; empty: it holds.
    """
    wrong = tuple(_shape(problem, choice)) or tuple(_copying(problem, choice))
    if wrong:
        return wrong
    walk = Walk(problem, choice)
    alive = walk.run()
    waits = sum(walk.copies.waits) if walk.copies else 0.0
    return (*_over(problem, alive, budget), *_price(problem, choice, walk.seconds_again + waits, seconds))


def _shape(problem: BlockProblem, choice: BlockChoice) -> Iterator[Violation]:
    if len(choice.options) != len(problem.blocks):
        text = f"{len(choice.options)} options for {len(problem.blocks)} blocks"
        yield Violation(reason="options_missing", text=text)
        return
    for block, option in zip(problem.blocks, choice.options, strict=True):
        if not 0 <= option < len(block.options):
            text = f"{block.module} has no option {option}: there are {len(block.options)}"
            yield Violation(reason="unknown_option", text=text)
            return
    if choice.segments and not problem.chain:
        yield Violation(reason="not_a_chain", text="the blocks are no chain, so that no segments can be formed")
    yield from _segments(problem, choice)


def _segments(problem: BlockProblem, choice: BlockChoice) -> Iterator[Violation]:
    for first, end in choice.segments:
        name = f"segment [{first}, {end})"
        if not 0 <= first <= end - 2 <= len(problem.blocks) - 2:
            yield Violation(reason="segment_range", text=f"{name} is not two or more of the blocks")
            continue
        for index in range(first, end):
            block = problem.blocks[index]
            action = block.options[choice.options[index]].action
            if action not in _INSIDE or not any(option.action is Action.CHECKPOINT for option in block.options):
                text = f"{block.module} ({action}) in {name}: only keep and checkpoint, both in its menu, work there"
                yield Violation(reason="segment_action", text=text)
    for (first, end), (start, stop) in combinations(choice.segments, 2):
        if first < start < end < stop or start < first < stop < end or (first, end) == (start, stop):
            text = f"segments [{first}, {end}) and [{start}, {stop}) are not nested"
            yield Violation(reason="segments_cross", text=text)
        elif start <= first and end <= stop:
            text = f"segment [{first}, {end}) stands before [{start}, {stop}), which is around it"
            yield Violation(reason="segment_order", text=text)


def _copying(problem: BlockProblem, choice: BlockChoice) -> Iterator[Violation]:
    if choice.stalls and (len(choice.stalls) != len(problem.positions) or min(choice.stalls) < 0):
        yield Violation(reason="copy_late", text="stalls are not one number of seconds for each position")
        return
    chosen = [block.options[option] for block, option in zip(problem.blocks, choice.options, strict=True)]
    waiting = sum(o.offloaded_bytes * len(b.spans) for b, o in zip(problem.blocks, chosen, strict=True))
    if not waiting:
        return
    if problem.host_link_bandwidth <= 0:
        yield Violation(reason="no_link", text="blocks offload without a link to the host")
        return
    if problem.host_bytes and waiting > problem.host_bytes:
        text = f"{format_bytes(waiting)} wait on the host, which has {format_bytes(problem.host_bytes)} for it"
        yield Violation(reason="host_full", text=text)
    for job in simulate(problem, choice).late():
        text = f"a copy of {problem.blocks[job.block].module} is not done when forward turns into backward"
        yield Violation(reason="copy_late", text=text)


def _over(problem: BlockProblem, alive: list[int], budget: int) -> Iterator[Violation]:
    for position, size in zip(problem.positions, alive, strict=True):
        if size > budget:
            text = f"{position.name} takes {size} bytes, {size - budget} more than the budget"
            yield Violation(reason="over_budget", text=text)


def _price(problem: BlockProblem, choice: BlockChoice, more: float, seconds: float | None) -> Iterator[Violation]:
    if seconds is None:
        return
    cost = more + sum(choice.stalls)
    cost += sum(block.options[option].seconds for block, option in zip(problem.blocks, choice.options, strict=True))
    if abs(cost - seconds) > 1e-6 * max(cost, seconds, 1e-9):
        yield Violation(reason="seconds_wrong", text=f"it costs {cost:.9g} s, not {seconds:.9g} s")
