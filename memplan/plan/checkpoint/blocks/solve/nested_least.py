"""The nested choice with the least peak of all, on exact bytes.

The recursion of ``nesting`` on memory alone: what a stretch needs is a number, not a cost for every amount of memory.
A stretch ``s..t`` begins with block ``s`` on its own, or with a segment ``[s, c)``::

    needs(s, t) = min( max(moments of s, paid by s + needs(s + 1, t)),
                       min over c of  input of s + max(first run of [s, c), needs(c, t), needs(s, c - 1)) )
"""

from typing import TYPE_CHECKING, NamedTuple

from memplan.plan.checkpoint.blocks.problem.copies import offloads
from memplan.plan.checkpoint.blocks.problem.memory import peak
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem, InfeasibleChoice, Option
from memplan.plan.checkpoint.blocks.solve.greedy import smallest
from memplan.plan.checkpoint.blocks.solve.nested_needs import ChainNeeds
from memplan.runtime.checkpoint.records import Action

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    Array = NDArray[int64]

_NEVER = 2**62
_TIGHT, _OWN = 0, 1


def least_of(problem: BlockProblem) -> InfeasibleChoice:
    """Return the least peak of any nesting, and the choice that has it."""
    found = LeastPeak(problem)
    choice = min(found.choice(), smallest(problem), key=lambda each: peak(problem, each)[0])
    most, at = peak(problem, choice)
    is_proved = most <= found.bound and not offloads(problem)
    return InfeasibleChoice(position=at, least_bytes=most, choice=choice, is_proved=is_proved)


class _Leaf(NamedTuple):
    """A stretch's first block on its own."""

    option: int
    paid: int
    """Bytes that stay taken once it has run."""
    is_out: bool
    """Is its result among them?"""
    needs: "Array"
    """Of the whole stretch, for every last block that it may have."""


class LeastPeak:
    """Least bytes of every stretch of a nested chain; options that offload are left aside."""

    def __init__(self, problem: BlockProblem) -> None:
        import numpy as np

        self._numpy, self._problem = np, problem
        self._needs = ChainNeeds(problem)
        self._links, self._count = self._needs.links, len(problem.blocks)
        # Behind the last block there is nothing. [tight][first block][last block]
        self._again = np.zeros((2, self._count + 1, self._count), dtype=np.int64)
        # [tight][first block]
        self._first = np.zeros((2, self._count + 1), dtype=np.int64)
        for start in reversed(range(self._count)):
            self._fill_again(start)
            cut = int(self._cuts(start, self._count - 1, is_first=True).min(initial=_NEVER))
            for tight in (True, False):
                leaf = min(int(leaf.needs[-1]) for leaf in self._leaves(start, tight=tight, is_first=True))
                self._first[int(not tight), start] = min(leaf, cut + self._own(start, tight))

    @property
    def bound(self) -> int:
        """No choice has a lower peak."""
        return int(self._first[_OWN, 0]) - self._needs.doubtful

    def choice(self) -> BlockChoice:
        """The choice of the least peak, as far as needs are certain."""
        options, segments = [0] * self._count, list[tuple[int, int]]()
        most = int(self._first[_OWN, 0])
        self._follow(0, self._count - 1, most, tight=False, is_first=True, found=(options, segments))
        return BlockChoice(options=tuple(options), segments=tuple(segments))

    def _fill_again(self, start: int) -> None:
        best = [
            self._numpy.min([leaf.needs for leaf in self._leaves(start, tight=tight, is_first=False)], axis=0)
            for tight in (True, False)
        ]
        for last in range(start, self._count):
            # These are made of shorter stretches with the same first block.
            cut = int(self._cuts(start, last, is_first=False).min(initial=_NEVER))
            for tight in (True, False):
                leaf = int(best[int(not tight)][last - start])
                self._again[int(not tight), start, last] = min(leaf, cut + self._own(start, tight))

    def _own(self, start: int, tight: bool) -> int:
        """Bytes of a stretch's input on its own account."""
        return 0 if tight else self._links.passed[start]

    def _leaves(self, start: int, *, tight: bool, is_first: bool) -> list[_Leaf]:
        return [
            self._leaf(start, number, option, tight=tight, is_first=is_first)
            for number, option in enumerate(self._problem.blocks[start].options)
            if (not option.offloaded_bytes if is_first else option.action in (Action.KEEP, Action.CHECKPOINT))
        ]

    def _leaf(self, start: int, number: int, option: Option, *, tight: bool, is_first: bool) -> _Leaf:
        np, links = self._numpy, self._links
        is_out = not links.groups[start + 1].isdisjoint(option.holds)
        paid = option.kept_bytes + (links.passed[start + 1] if is_out else 0)
        if not links.groups[start].isdisjoint(option.holds):
            paid += self._own(start, tight)
        made = 0 if is_out or start < self._count - 1 else links.passed[-1]
        before = paid + made + links.before_backward[start] if links.before_backward[start] else 0
        moment = paid + option.backward_peak_bytes + links.backward[start]
        side = _TIGHT if is_out else _OWN
        if is_first:
            gap = links.before_forward[start] - (0 if start else links.passed[0])
            runs = self._own(start, tight) + max(option.forward_peak_bytes + links.forward[start], gap)
            needs = np.array([max(moment, before, runs, paid + int(self._first[side, start + 1]))])
        else:
            runs = self._own(start, tight) + option.forward_peak_bytes + np.array(links.backward[start:])
            if self._needs.once_more[start] is None:
                runs[:] = _NEVER
            between = np.full_like(runs, before)
            # Nothing comes between a last block and its backward, whose own second run it is if it is checkpointed.
            between[0] = 0
            runs[0] *= option.action is not Action.CHECKPOINT
            needs = np.maximum.reduce([runs, between, paid + self._again[side, start + 1, start:]])
            needs = np.maximum(needs, moment)
        return _Leaf(number, paid, is_out, np.minimum(needs, _NEVER))

    def _cuts(self, start: int, last: int, *, is_first: bool) -> "Array":
        """Needs of a stretch that begins with a segment, for each end of it, its input aside."""
        # Of a run again the last part is better off without a segment of its own; of the first run it may be one.
        stop = last + 1 if is_first else last
        if stop < start + 2:
            return self._numpy.empty(0, dtype=self._numpy.int64)
        ends = slice(start + 2, stop + 1)
        after = self._first[_OWN, ends] if is_first else self._again[_OWN, ends, last]
        inside = self._again[_TIGHT, start, start + 1 : stop]
        first = self._needs.of_segments(start, last, stop, is_first=is_first)
        found: Array = self._numpy.maximum.reduce([first, after, inside])
        found[self._needs.cannot_run(start, stop)] = _NEVER
        return found

    def _follow(
        self,
        start: int,
        last: int,
        most: int,
        *,
        tight: bool,
        is_first: bool,
        found: tuple[list[int], list[tuple[int, int]]],
    ) -> None:
        """Decide the options and segments of a stretch that may need so many bytes: the quickest option will do."""
        while start <= last:
            at = -1 if is_first else last - start
            leaves = self._leaves(start, tight=tight, is_first=is_first)
            fitting = [leaf for leaf in leaves if leaf.needs[at] <= most]
            if fitting:
                menu = self._problem.blocks[start].options
                leaf = min(fitting, key=lambda each: (menu[each.option].seconds, int(each.needs[at])))
                found[0][start] = leaf.option
                start, tight, most = start + 1, leaf.is_out, most - leaf.paid
            else:
                end = start + 2 + int(self._cuts(start, last, is_first=is_first).argmin())
                most -= self._own(start, tight)
                found[1].append((start, end))
                self._follow(start, end - 1, most, tight=True, is_first=False, found=found)
                start, tight = end, False
