"""Walks through the step under a choice with explicit sets of what is alive. Shares no code with any solver.

At every position the walk runs what runs there: a block's forward; or the segments that end with the block, outermost
first, again, and then its backward. It notes the bytes alive at each of these moments.
"""

from collections.abc import Callable, Iterator
from functools import partial

from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem, ModuleBlock, Option
from memplan.runtime.checkpoint.records import Action
from tests.plan.checkpoint.blocks.support.transfers import Transfers, simulate

_Token = tuple[str, int, int, tuple[int, int] | None]


class Walk:
    """One walk through the step.

    Args:
        problem: The step and its blocks.
        choice: A choice whose shape is right.

    ``alive`` maps what is alive to its bytes: ("kept", block, micro-batch, None); ("tensor", interface, micro-batch,
    the segment whose run again made it); ("state", first block, micro-batch, the segment, or None for a block).
    """

    def __init__(self, problem: BlockProblem, choice: BlockChoice) -> None:
        self.problem, self.choice = problem, choice
        self.alive: dict[_Token, int] = {}
        self.finished: set[tuple[int, int, int]] = set()
        self.seconds_again = 0.0
        self.copies: Transfers | None = None
        if any(self._option(block).offloaded_bytes for block in range(len(problem.blocks))):
            self.copies = simulate(problem, choice)

    def run(self) -> list[int]:
        """Bytes at each position."""
        highs = []
        for at, position in enumerate(self.problem.positions):
            high = max(self._moments(at))
            moving = self.copies.under_way(at) + self.copies.ahead[at] if self.copies else 0
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
        record, state = self.problem.blocks[block], self.problem.state_bytes
        around = self._around(block, block + 1)
        for segment in around:
            if segment[0] == block:
                self.alive["state", block, batch, segment] = state
        if around:
            is_call = self._option(block).action is Action.CHECKPOINT
            yield sum(self.alive.values()) + checkpoint_of(record).forward_peak_bytes - (0 if is_call else state)
            if is_call:
                self.alive["state", block, batch, None] = state
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
        for segment in self.choice.segments:
            if segment[0] == block:
                self.finished.add((*segment, batch))
                del self.alive["state", block, batch, segment]

    def _run_again(self, first: int, end: int, batch: int) -> Iterator[int]:
        parts = self._parts(first, end)
        for number, part in enumerate(parts):
            is_single = part[1] == part[0] + 1
            is_last = number == len(parts) - 1
            if not is_last or (is_single and self._option(part[0]).action is Action.KEEP):
                for block in range(*part):
                    yield self._once_more(block, (first, end), batch, kept=is_single)
                    # A run again ends with the last tensor that is saved, which is one of its last block.
                    self.seconds_again += self._price(block, is_cut=is_last)
            if is_single:
                self.alive["kept", part[0], batch, None] = self._option(part[0]).kept_bytes
        for start, stop in parts:
            # Of a block that has run again, the state is among what it keeps.
            if stop == start + 1:
                self.alive.pop(("state", start, batch, None), None)
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
            if not is_copy or self._is_held(token) or self.problem.interfaces[token[1]].forward_end >= forward:
                return False
            return not any(first <= block < end for first, end in self._takers(token[1]))

        self._drop(is_over)
        option = self._option(block) if kept else checkpoint_of(record)
        high = sum(self.alive.values()) + option.forward_peak_bytes + self.problem.state_bytes
        for index, interface in enumerate(self.problem.interfaces):
            if interface.micro_batch == batch and self._maker(index) == block:
                self.alive["tensor", index, batch, segment] = interface.nbytes
        return high

    def _price(self, block: int, *, is_cut: bool) -> float:
        """Seconds of one more forward in one micro-batch; a block's own seconds are of the whole step."""
        record = self.problem.blocks[block]
        cut = checkpoint_of(record).seconds
        whole = cut if is_cut else max(cut, sum(self.problem.positions[at].seconds for at, _ in record.spans))
        return whole / len(record.spans)

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
        if token[0] != "tensor":
            return False
        ends = [self.problem.blocks[end - 1].spans[token[2]][0] for _, end in self._takers(token[1])]
        is_used = token[3] is None and at < max([self.problem.interfaces[token[1]].forward_end, *ends])
        return not is_used and not self._is_held(token)

    def _takers(self, index: int) -> list[tuple[int, int]]:
        """Segments that take a tensor: while one runs, whoever calls it holds what it takes."""
        return [segment for segment in self.choice.segments if self._holds(*segment, index)]

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
        return any(
            index in self._option(k).holds or index in checkpoint_of(self.problem.blocks[k]).holds for k in blocks
        )

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


def checkpoint_of(block: ModuleBlock) -> Option:
    """How a block of a segment runs for the first time."""
    return next(option for option in block.options if option.action is Action.CHECKPOINT)
