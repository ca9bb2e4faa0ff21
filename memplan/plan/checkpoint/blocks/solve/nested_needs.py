"""The bytes that the blocks of a chain need while they run, without what others keep.

A segment inside another runs for the first time in the step's forward and whenever a segment around it runs again. It
is known by the last of these moments, and what the one with most steady bytes needs is asked of it.

Tensors that concern others than two neighbours count as steady for as long as anybody could hold them. Of several
micro-batches the largest figure counts.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memplan.plan.checkpoint.blocks.problem.records import BlockProblem, Interface, ModuleBlock, Option

if TYPE_CHECKING:
    from numpy import bool_, int64
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainLinks:
    """Bytes of a chain of ``n`` blocks."""

    passed: tuple[int, ...]
    """What block ``k`` gets from the block before it; the last of ``n + 1`` entries is what the last block makes."""
    groups: tuple[frozenset[int], ...]
    """The interface tensors that these are."""
    forward: tuple[int, ...]
    """Steady bytes while each block's forward runs."""
    before_forward: tuple[int, ...]
    """Most steady bytes between the forward before it and its own; before the first one's with what it gets."""
    backward: tuple[int, ...]
    """Steady bytes while each block's backward runs."""
    before_backward: tuple[int, ...]
    """Most steady bytes between what runs before its backward and that; before the last block's, what it makes is alive
    besides."""
    doubtful: int
    """By how much these figures may be too high at most, under some choice."""


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


def links_of(problem: BlockProblem) -> ChainLinks:
    """Sort a nested problem's tensors into links and steady bytes."""
    count = len(problem.blocks)
    steady: list[int] = [position.fixed_bytes for position in problem.positions]
    groups: list[set[int]] = [set() for _ in range(count + 1)]
    doubtful = 0
    for index, interface in enumerate(problem.interfaces):
        link = _link(problem, index, interface)
        if link is not None:
            groups[link].add(index)
            continue
        until, is_sure = _longest(problem, index, interface)
        doubtful += 0 if is_sure else interface.nbytes
        for at in range(interface.born + 1, until + 1):
            steady[at] += interface.nbytes
    sizes = [
        [
            sum(problem.interfaces[i].nbytes for i in group if problem.interfaces[i].micro_batch == batch)
            for batch in range(len(problem.blocks[0].spans))
        ]
        for group in groups
    ]
    held = [frozenset(option.holds) for block in problem.blocks for option in block.options]
    for each, group in zip(sizes, groups, strict=True):
        # What passes between two blocks counts as held as a whole.
        is_sure = all(group <= holds or group.isdisjoint(holds) for holds in held)
        doubtful += max(each) - min(each) if is_sure else max(each)
    # What the last block makes is needed between forward and backward; only what runs there does not count it itself.
    for index in groups[count]:
        interface = problem.interfaces[index]
        for at in range(interface.born + 1, interface.forward_end + 1):
            steady[at] += interface.nbytes if problem.positions[at].block is not None else 0
    for index in groups[0]:
        interface = problem.interfaces[index]
        for at in range(interface.born + 1, interface.forward_end + 1):
            steady[at] += interface.nbytes if problem.positions[at].block is None else 0
    gaps = _gaps(problem, steady)
    spans = [block.spans for block in problem.blocks]
    return ChainLinks(
        passed=tuple(max(each) for each in sizes),
        groups=tuple(frozenset(group) for group in groups),
        forward=tuple(max(steady[forward] for forward, _ in span) for span in spans),
        before_forward=tuple(gaps[0]),
        backward=tuple(max(steady[backward] for _, backward in span) for span in spans),
        before_backward=tuple(gaps[1]),
        doubtful=doubtful,
    )


def _link(problem: BlockProblem, index: int, interface: Interface) -> int | None:
    """The block that gets a tensor from the one before it; None if it concerns others."""
    forwards = [block.spans[interface.micro_batch][0] for block in problem.blocks]
    holders = {k for k, b in enumerate(problem.blocks) if any(index in option.holds for option in b.options)}
    link = sum(forward <= interface.born for forward in forwards)
    is_made_by_block = link == 0 or forwards[link - 1] == interface.born
    ends_in_time = link == len(forwards) or interface.forward_end <= forwards[link]
    return link if is_made_by_block and ends_in_time and holders <= {link - 1, link} else None


def _longest(problem: BlockProblem, index: int, interface: Interface) -> tuple[int, bool]:
    """The last position at which a tensor may be alive, and whether it always is until then.

    A segment holds it for its first block's backward.
    """
    backwards = [block.spans[interface.micro_batch][1] for block in problem.blocks]
    holders = [k for k, b in enumerate(problem.blocks) if any(index in option.holds for option in b.options)]
    made = [k for k, b in enumerate(problem.blocks) if b.spans[interface.micro_batch][0] <= interface.born]
    if not holders:
        return interface.forward_end, True
    first = min([*holders, max(made) + 1 if made else 0])
    is_sure = all(index in option.holds for option in problem.blocks[first].options)
    return max(interface.forward_end, backwards[first]), is_sure


def _gaps(problem: BlockProblem, steady: list[int]) -> tuple[list[int], list[int]]:
    """Most steady bytes between blocks, before each forward and before each backward."""
    forward, backward = [0] * len(problem.blocks), [0] * len(problem.blocks)
    most = 0  # Nothing lies between: no bytes bind.
    for at, position in enumerate(problem.positions):
        if position.block is None:
            most = max(most, steady[at])
            continue
        gaps = backward if position.phase == "backward" else forward
        gaps[position.block] = max(gaps[position.block], most)
        most = 0
    # What follows the last backward is alive whatever is chosen: no forward starts below it.
    forward[0] = max(forward[0], most)
    return forward, backward
