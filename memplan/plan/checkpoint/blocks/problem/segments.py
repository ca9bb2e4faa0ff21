"""The nesting of a choice's segments as a tree."""

from collections.abc import Iterator
from dataclasses import dataclass

from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem
from memplan.runtime.checkpoint.records import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPart:
    """A block or a segment."""

    first: int
    """Its first block."""
    end: int
    """The block after its last one."""
    segment: int | None
    """Index of the segment; None: a block."""
    parent: int | None
    """The innermost segment around it."""


class SegmentTree:
    """The properly nested segments of one choice, by index into ``BlockChoice.segments``."""

    def __init__(self, problem: BlockProblem, choice: BlockChoice) -> None:
        self._segments = choice.segments
        self._innermost: list[int | None] = [None] * len(problem.blocks)
        self._parents: list[int | None] = []
        for index, (first, end) in enumerate(choice.segments):
            # Outermost first: whoever holds the place before is the parent.
            self._parents.append(self._innermost[first])
            self._innermost[first:end] = [index] * (end - first)
        self._checkpointed = [
            block.options[option].action is Action.CHECKPOINT
            for block, option in zip(problem.blocks, choice.options, strict=True)
        ]

    def innermost(self, block: int) -> int | None:
        """The innermost segment that a block is part of."""
        return self._innermost[block]

    def inside(self, segment: int) -> Iterator[int]:
        """The segments inside one, at any depth, outermost first."""
        first, end = self._segments[segment]
        for other, (start, stop) in enumerate(self._segments):
            if other != segment and first <= start and stop <= end:
                yield other

    def parts(self) -> Iterator[SegmentPart]:
        """Every block and every segment."""
        for block, parent in enumerate(self._innermost):
            yield SegmentPart(first=block, end=block + 1, segment=None, parent=parent)
        for segment, (first, end) in enumerate(self._segments):
            yield SegmentPart(first=first, end=end, segment=segment, parent=self._parents[segment])

    def source(self, part: SegmentPart, maker: int | None) -> int | None:
        """The segment whose run again makes the copy that a part holds of what block ``maker`` makes; None: no run."""
        around = part.parent
        while around is not None and maker not in range(*self._segments[around]):
            around = self._parents[around]
        return around

    def runs_again(self, segment: int) -> range:
        """The blocks that run when a segment runs again: all but a last part that its own backward runs."""
        first, end = self._segments[segment]
        last = self._innermost[end - 1]
        if last == segment:
            return range(first, end - 1 if self._checkpointed[end - 1] else end)
        while self._parents[last] != segment:  # type: ignore[index]
            last = self._parents[last]  # type: ignore[index]
        return range(first, self._segments[last][0])  # type: ignore[index]
