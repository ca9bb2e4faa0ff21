"""The bytes that the blocks of a chain need while they run, without what others keep.

A segment inside another runs for the first time in the step's forward and whenever a segment around it runs again. It
is known by the last of these moments, and what the one with most steady bytes needs is asked of it.
"""

from typing import TYPE_CHECKING

from memplan.plan.checkpoint.blocks.problem.records import BlockProblem, ModuleBlock, Option
from memplan.plan.checkpoint.blocks.solve.nested_links import links_of

if TYPE_CHECKING:
    from numpy import bool_, int64
    from numpy.typing import NDArray


class ChainNeeds:
    """Needs of a nested chain."""

    def __init__(self, problem: BlockProblem) -> None:
        import numpy as np

        self._numpy = np
        self.links = links = links_of(problem)
        self.once_more = [_checkpoint(block) for block in problem.blocks]
        running = np.array([0 if option is None else option.forward_peak_bytes for option in self.once_more])
        before = np.array(links.before_forward)
        # What the first block gets is reckoned with in the gap before it, where it may not be made yet.
        before[0] -= links.passed[0]
        self._first = np.maximum(running + np.array(links.forward), before)
        earlier = self._first.copy()
        # Before the first block nothing depends on the choice.
        earlier[0] = running[0] + links.forward[0]
        backward = np.array(links.backward)
        peaks = [min(option.backward_peak_bytes for option in block.options) for block in problem.blocks]
        if (earlier + np.array(links.passed[:-1]).cumsum()).max() <= (backward + np.array(peaks)).max():
            # Not even the inputs of all blocks together make forward bind before some backward does.
            earlier[:] = 0
        rising = np.maximum.accumulate(backward[::-1])[::-1]
        # [block in whose backward][block that runs]
        self._again = np.maximum(rising[:, None] + running[None, :], earlier[None, :])
        spare = np.tril(self._again - (backward[:, None] + running[None, :]))
        self.doubtful = links.doubtful + max(0, int(spare.max()))
        """By how many bytes needs may be too high at most, under some choice."""
        self._got = np.array(links.passed[:-1])
        self._missing = np.array([0, *(option is None for option in self.once_more)]).cumsum()

    def of_segments(self, start: int, last: int, stop: int, *, is_first: bool) -> "NDArray[int64]":
        """Bytes until a segment ``[start, end)`` has run for the first time, for each end from ``start + 2`` to a stop.

        ``last`` is the block in whose backward that is, unless it is the step's forward (``is_first``).
        """
        np = self._numpy
        high = (self._first if is_first else self._again[last])[start:stop] + self._got[start:stop]
        high[0] -= self._got[start]
        high = np.maximum.accumulate(high)[1:]
        gaps = np.array(self.links.before_backward[start + 1 : stop])
        if is_first and stop == len(self._got) and gaps[-1]:
            # Between forward and backward what the last block makes is alive besides.
            gaps[-1] += self.links.passed[-1]
        needs: NDArray[int64] = np.maximum(high, gaps)
        return needs

    def cannot_run(self, start: int, stop: int) -> "NDArray[bool_]":
        """For the same segments: does a block in them have no option ``checkpoint``?"""
        missing: NDArray[bool_] = self._missing[start + 2 : stop + 1] > self._missing[start]
        return missing


def _checkpoint(block: ModuleBlock) -> Option | None:
    try:
        return block.checkpoint_option
    except LookupError:
        return None
