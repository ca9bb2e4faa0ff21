"""Extra time of a choice: its options, the runs again of its segments, the waiting for copies there and back."""

from collections.abc import Iterator

from memplan.plan.checkpoint.blocks.problem.copies import computing_seconds, fetches
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem, Position
from memplan.plan.checkpoint.blocks.problem.segments import SegmentTree


def extra_seconds(problem: BlockProblem, choice: BlockChoice) -> float:
    """Return the extra time of a choice in a step."""
    return sum(block_seconds(problem, choice)) + sum(choice.stalls)


def block_seconds(problem: BlockProblem, choice: BlockChoice) -> tuple[float, ...]:
    """Return the extra time of each block: its option, its copies back, and the runs again of segments around it."""
    found = [block.options[option].seconds for block, option in zip(problem.blocks, choice.options, strict=True)]
    for block, is_whole in _runs_again(problem, choice):
        once_more = problem.blocks[block].checkpoint_option.seconds
        found[block] += forward_seconds(problem, block) if is_whole else once_more
    waits = fetches(problem, choice, computing_seconds(problem, choice)).waits
    for position, wait in zip(problem.positions, waits, strict=True):
        if wait and position.block is not None:
            found[position.block] += wait
    return tuple(found)


def forward_seconds(problem: BlockProblem, block: int) -> float:
    """Return the cost of one more whole forward of a block in all micro-batches: no less than one that stops early.

    Raises:
        LookupError: It cannot be part of a segment.
    """
    whole = sum(position.seconds for position in _forwards(problem, block))
    return max(problem.blocks[block].checkpoint_option.seconds, whole)


def _forwards(problem: BlockProblem, block: int) -> Iterator[Position]:
    return (problem.positions[forward] for forward, _ in problem.blocks[block].spans)


def _runs_again(problem: BlockProblem, choice: BlockChoice) -> Iterator[tuple[int, bool]]:
    """Blocks that run once more in segments; does their forward come to its end?"""
    tree = SegmentTree(problem, choice)
    for segment, (_, end) in enumerate(choice.segments):
        yield from ((block, block < end - 1) for block in tree.runs_again(segment))
