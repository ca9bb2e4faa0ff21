"""Judges a choice by walking through the step with explicit sets of what is alive. Shares no code with any solver.

At every position the walk runs what runs there: a block's forward; or the segments that end with the block, outermost
first, again, and then its backward. It notes the bytes alive at each of these moments.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Literal

from memplan.plan.checkpoint.block.records import Block, BlockProblem, Choice, Option
from memplan.plan.checkpoint.block.transfers import Transfers, simulate
from memplan.runtime.checkpoint.records import Action
from memplan.units import Bytes, format_bytes

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
    problem: BlockProblem, choice: Choice, budget: Bytes, *, seconds: float | None = None
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
    walk = _Walk(problem, choice)
    return (*_over(problem, walk.run(), budget), *_price(problem, choice, walk.again, seconds))


def walked_bytes(problem: BlockProblem, choice: Choice) -> tuple[int, ...]:
    """Most bytes alive at each position, by the walk, of a choice whose shape is right."""
    return tuple(_Walk(problem, choice).run())


def _shape(problem: BlockProblem, choice: Choice) -> Iterator[Violation]:
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


def _segments(problem: BlockProblem, choice: Choice) -> Iterator[Violation]:
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


def _copying(problem: BlockProblem, choice: Choice) -> Iterator[Violation]:
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


def _price(problem: BlockProblem, choice: Choice, again: list[int], seconds: float | None) -> Iterator[Violation]:
    if seconds is None:
        return
    cost = sum(choice.stalls) + sum(
        block.options[option].seconds for block, option in zip(problem.blocks, choice.options, strict=True)
    )
    # The walk runs every micro-batch; a block's seconds are of the whole step.
    cost += sum(_checkpoint(problem.blocks[block]).seconds / len(problem.blocks[block].spans) for block in again)
    if abs(cost - seconds) > 1e-6 * max(cost, seconds, 1e-9):
        yield Violation(reason="seconds_wrong", text=f"it costs {cost:.9g} s, not {seconds:.9g} s")


def _checkpoint(block: Block) -> Option:
    return next(option for option in block.options if option.action is Action.CHECKPOINT)


_Token = tuple[str, int, int, tuple[int, int] | None]


class _Walk:
    """One walk through the step.

    ``alive`` maps what is alive to its bytes: ("kept", block, micro-batch, None), or ("tensor", interface, micro-batch,
    the segment whose run again made the copy).
    """

    def __init__(self, problem: BlockProblem, choice: Choice) -> None:
        self.problem, self.choice = problem, choice
        self.alive: dict[_Token, int] = {}
        self.finished: set[tuple[int, int, int]] = set()
        self.again: list[int] = []
        self.copies: Transfers | None = None
        if any(self._option(block).offloaded_bytes for block in range(len(problem.blocks))):
            self.copies = simulate(problem, choice)

    def run(self) -> list[int]:
        """Bytes at each position."""
        highs = []
        for at, position in enumerate(self.problem.positions):
            high = max(self._moments(at))
            moving = self.copies.under_way(at) if self.copies else 0
            highs.append(position.fixed_bytes + moving + high)
            self._drop(partial(self._is_over, at))
        return highs

    def _moments(self, at: int) -> Iterator[int]:
        block = self.problem.positions[at].block
        if block is None:
            yield sum(self.alive.values())
        else:
            spans = self.problem.blocks[block].spans
            batch = next(batch for batch, span in enumerate(spans) if at in span)
            if at == spans[batch][0]:
                yield from self._forward(block, batch)
            else:
                yield from self._backward(block, batch)
        for index, interface in enumerate(self.problem.interfaces):
            if interface.born == at:
                self.alive["tensor", index, interface.micro_batch, None] = interface.nbytes

    def _forward(self, block: int, batch: int) -> Iterator[int]:
        record = self.problem.blocks[block]
        if self._around(block, block + 1):
            yield sum(self.alive.values()) + _checkpoint(record).forward_peak_bytes
        else:
            yield sum(self.alive.values()) + self._option(block).forward_peak_bytes
            self.alive["kept", block, batch, None] = self._option(block).kept_bytes

    def _backward(self, block: int, batch: int) -> Iterator[int]:
        for first, end in sorted(self.choice.segments):
            if end == block + 1:
                yield from self._run_again(first, end, batch)
        yield sum(self.alive.values()) + self._option(block).backward_peak_bytes
        del self.alive["kept", block, batch, None]
        self.finished.add((block, block + 1, batch))
        self.finished.update((first, end, batch) for first, end in self.choice.segments if first == block)

    def _run_again(self, first: int, end: int, batch: int) -> Iterator[int]:
        parts = self._parts(first, end)
        for number, part in enumerate(parts):
            is_single = part[1] == part[0] + 1
            is_last = number == len(parts) - 1
            if not is_last or (is_single and self._option(part[0]).action is Action.KEEP):
                for block in range(*part):
                    yield self._once_more(block, (first, end), batch, kept=is_single)
            if is_single:
                self.alive["kept", part[0], batch, None] = self._option(part[0]).kept_bytes
        # What the last part's own recomputation makes for its holders is counted from here on.
        for index, interface in enumerate(self.problem.interfaces):
            if interface.micro_batch == batch and self._maker(index) in range(first, end):
                token = ("tensor", index, batch, (first, end))
                if self._is_held(token):
                    self.alive[token] = interface.nbytes
                else:
                    self.alive.pop(token, None)

    def _once_more(self, block: int, segment: tuple[int, int], batch: int, *, kept: bool) -> int:
        record = self.problem.blocks[block]
        forward = record.spans[batch][0]

        def is_over(token: _Token) -> bool:
            is_copy = token[0] == "tensor" and token[3] == segment and token[2] == batch
            return is_copy and self.problem.interfaces[token[1]].forward_end < forward and not self._is_held(token)

        self._drop(is_over)
        option = self._option(block) if kept else _checkpoint(record)
        high = sum(self.alive.values()) + option.forward_peak_bytes
        self.again.append(block)
        for index, interface in enumerate(self.problem.interfaces):
            if interface.micro_batch == batch and self._maker(index) == block:
                self.alive["tensor", index, batch, segment] = interface.nbytes
        return high

    def _parts(self, first: int, end: int) -> list[tuple[int, int]]:
        inside = [(a, b) for a, b in self.choice.segments if first <= a and b <= end and (a, b) != (first, end)]
        largest = [s for s in inside if not any(o[0] <= s[0] and s[1] <= o[1] and o != s for o in inside)]
        single = [(k, k + 1) for k in range(first, end) if not any(a <= k < b for a, b in largest)]
        return sorted(largest + single)

    def _around(self, first: int, end: int) -> list[tuple[int, int]]:
        """Segments around a part, innermost first."""
        around = [(a, b) for a, b in self.choice.segments if a <= first and end <= b and (a, b) != (first, end)]
        return sorted(around, key=lambda segment: segment[1] - segment[0])

    def _is_over(self, at: int, token: _Token) -> bool:
        """Is something alive no longer wanted after a position?"""
        if token[0] == "kept":
            return False
        is_used = token[3] is None and at < self.problem.interfaces[token[1]].forward_end
        return not is_used and not self._is_held(token)

    def _is_held(self, token: _Token) -> bool:
        _, index, batch, segment = token
        parts = [(k, k + 1) for k in range(len(self.problem.blocks))] + list(self.choice.segments)
        return any(
            (first, end, batch) not in self.finished
            and self._holds(first, end, index)
            and self._copy_for(first, end, index) == segment
            for first, end in parts
        )

    def _holds(self, first: int, end: int, index: int) -> bool:
        if end == first + 1:
            return index in self._option(first).holds
        if self._maker(index) in range(first, end):
            return False
        blocks = range(first, end)
        return any(index in self._option(k).holds or index in _checkpoint(self.problem.blocks[k]).holds for k in blocks)

    def _copy_for(self, first: int, end: int, index: int) -> tuple[int, int] | None:
        for segment in self._around(first, end):
            if self._maker(index) in range(*segment):
                return segment
        return None

    def _maker(self, index: int) -> int | None:
        interface = self.problem.interfaces[index]
        return next(
            (
                k
                for k, block in enumerate(self.problem.blocks)
                if block.spans[interface.micro_batch][0] == interface.born
            ),
            None,
        )

    def _option(self, block: int) -> Option:
        return self.problem.blocks[block].options[self.choice.options[block]]

    def _drop(self, is_over: Callable[[_Token], bool]) -> None:
        for token in [token for token in self.alive if is_over(token)]:
            del self.alive[token]
