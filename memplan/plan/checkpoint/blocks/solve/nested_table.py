"""The table behind ``rotor``: costs of every stretch of a chain for every amount of memory.

A stretch ``s..t`` of a run again happens within the backward of block ``t``; the first run, up to the last block,
happens block by block and is held apart. Either somebody else keeps the input of ``s`` alive (*tight*), or ``s`` pays
for it if it holds it (*own*). What stays is rounded up to slots; what is needed for a moment is compared with them.
"""

import math
import time
from typing import TYPE_CHECKING, NamedTuple

from memplan.plan.checkpoint.blocks.problem.memory import peak
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem, Option
from memplan.plan.checkpoint.blocks.problem.seconds import forward_seconds
from memplan.plan.checkpoint.blocks.solve.greedy import cheapest
from memplan.plan.checkpoint.blocks.solve.nested_needs import ChainNeeds
from memplan.plan.checkpoint.blocks.solve.nested_slots import FLAT_SLOTS, SLOTS, slots_for
from memplan.runtime.checkpoint.records import Action

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Array = NDArray[float32]

_TIGHT, _OWN = 0, 1
_ANY, _NESTED = 0, 1


class _Leaf(NamedTuple):
    """A block that runs on its own."""

    needed: int
    """Slots without which it cannot."""
    paid: int
    """Slots that stay taken once it has run."""
    seconds: float
    is_out: bool
    """Is its result among what stays?"""


class NestedTable:
    """The recursion's costs for every stretch of blocks and every number of slots.

    ``ends`` is a moment of the monotonic clock; ``is_flat`` weighs no segments: there is room for many more slots then.

    Raises:
        TimeoutError: It is over.
    """

    def __init__(self, problem: BlockProblem, ends: float, *, is_flat: bool = False) -> None:
        import numpy as np

        self._numpy, self._problem, self._is_flat = np, problem, is_flat
        self._needs = ChainNeeds(problem)
        self._links = links = self._needs.links
        self._count = count = len(problem.blocks)
        self.base = min((*links.forward, *links.backward))
        extent = peak(problem, cheapest(problem))[0] - self.base
        kept = [[option.kept_bytes for option in block.options] for block in problem.blocks]
        self._kinds = (_ANY,) if is_flat else (_ANY, _NESTED)
        self.grid = slots_for(extent, [*kept, *([size] for size in links.passed)], FLAT_SLOTS if is_flat else SLOTS)
        self._passed = [self.grid.up(size) for size in links.passed]
        self._once_more = self._needs.once_more
        whole = [0.0 if option is None else forward_seconds(problem, k) for k, option in enumerate(self._once_more)]
        self._forwards = np.array([0.0, *whole]).cumsum()
        self.doubtful = self._needs.doubtful
        # Some beyond what the cheapest choice takes, for bounds that rounding and doubt are given back to.
        self.slots = self.grid.up(extent + self.doubtful) + math.ceil(self.grid.lost) + 1
        # [tight][s][t] and, for sums over consecutive memory, [own][t][s].
        self._again = np.empty((2, count, 0 if is_flat else count, self.slots + 1), dtype=np.float32)
        # [any, or with a segment][tight][s].
        self._first = np.full((len(self._kinds), 2, count, self.slots + 1), np.inf, dtype=np.float32)
        for start in reversed(range(count)):
            for last in () if is_flat else range(start, count):
                if time.monotonic() > ends:
                    raise TimeoutError
                self._fill_again(start, last)
            self._fill_first(start)

    def seconds(self, slots: int, *, with_segment: bool = False) -> float:
        """Extra time of the cheapest choice for a number of slots; infinite: there is none.

        ``with_segment`` asks for choices with segments alone.
        """
        return float(self._first[_NESTED if with_segment else _ANY, _OWN, 0, slots]) if slots >= 0 else math.inf

    def choice(self, slots: int) -> BlockChoice | None:
        """The cheapest choice for a number of slots."""
        if not math.isfinite(self.seconds(slots)):
            return None
        options, segments = [0] * self._count, list[tuple[int, int]]()
        self._follow(0, self._count - 1, slots, tight=False, is_first=True, found=(options, segments))
        return BlockChoice(options=tuple(options), segments=tuple(segments))

    def _fill_again(self, start: int, last: int) -> None:
        cut = self._shortest(start, last, is_first=False)
        best = self._again[_TIGHT, start, last], self._again[_OWN, last, start]
        for tight in (True, False):
            costs = best[_TIGHT if tight else _OWN]
            costs[:] = self._numpy.inf
            self._lower(costs, start, last, tight=tight, is_first=False)
            self._take(costs, cut, 0 if tight else self._passed[start])

    def _fill_first(self, start: int) -> None:
        cut = self._shortest(start, self._count - 1, is_first=True)
        for tight in (True, False):
            for kind in self._kinds:
                costs = self._first[kind, _TIGHT if tight else _OWN, start]
                if kind == _ANY or start < self._count - 1:
                    self._lower(costs, start, self._count - 1, tight=tight, is_first=True, kind=kind)
                self._take(costs, cut, 0 if tight else self._passed[start])

    def _lower(self, costs: "Array", start: int, last: int, *, tight: bool, is_first: bool, kind: int = _ANY) -> None:
        """Costs of a stretch whose first block runs on its own, where they are less than those known."""
        for number in self._options(start, is_first):
            leaf = self._leaf(start, last, number, tight=tight, is_first=is_first)
            if start == last:
                rest = self._numpy.zeros(self.slots + 1, dtype=self._numpy.float32)
            else:
                rest = self._rest(start + 1, last, is_first, tight=leaf.is_out, kind=kind)
            self._take(costs, rest + self._numpy.float32(leaf.seconds), leaf.paid, leaf.needed)

    def _take(self, costs: "Array", others: "Array", paid: int, needed: int = 0) -> None:
        """Lower costs to others, for which slots are paid first and needed at least."""
        low = max(paid, needed)
        if low <= self.slots:
            self._numpy.minimum(costs[low:], others[low - paid : self.slots + 1 - paid], out=costs[low:])

    def _options(self, block: int, is_first: bool) -> list[int]:
        options = enumerate(self._problem.blocks[block].options)
        if is_first:
            return [number for number, option in options if not option.offloaded_bytes]
        return [number for number, option in options if option.action in (Action.KEEP, Action.CHECKPOINT)]

    def _leaf(self, start: int, last: int, number: int, *, tight: bool, is_first: bool) -> _Leaf:
        """A stretch's first block on its own, under an option."""
        option, links = self._problem.blocks[start].options[number], self._links
        paid, is_out = self._paid(start, option, tight)
        runs = is_first or start < last or option.action is not Action.CHECKPOINT
        needs = [paid, paid + self._up(option.backward_peak_bytes + links.backward[start])]
        if (is_first or start < last) and links.before_backward[start]:
            made = 0 if is_out or start < self._count - 1 else self._passed[-1]
            needs.append(paid + made + self._up(links.before_backward[start]))
        if runs:
            needs.append(self._running(start, last, option, is_first, 0 if tight else links.passed[start]))
        again = 0.0 if is_first or not runs else self._again_seconds(start, is_last=start == last)
        return _Leaf(needed=max(0, *needs), paid=paid, seconds=option.seconds + again, is_out=is_out)

    def _again_seconds(self, block: int, *, is_last: bool) -> float:
        """Return the cost of a block's second run in a segment: the last block of a stretch stops early."""
        once_more = self._once_more[block]
        if once_more is None:
            return math.inf
        return once_more.seconds if is_last else float(self._forwards[block + 1] - self._forwards[block])

    def _up(self, size: int) -> int:
        """Slots that a moment with so many bytes needs."""
        return self.grid.up(size - self.base)

    def _paid(self, start: int, option: Option, tight: bool) -> tuple[int, bool]:
        """Slots that stay taken once a block has run, and whether its result is among them."""
        is_out = not self._links.groups[start + 1].isdisjoint(option.holds)
        paid = self.grid.up(option.kept_bytes) + (self._passed[start + 1] if is_out else 0)
        if not tight and not self._links.groups[start].isdisjoint(option.holds):
            paid += self._passed[start]
        return paid, is_out

    def _running(self, block: int, last: int, option: Option, is_first: bool, got: int) -> int:
        """Slots needed until a block's forward has run, ``got`` bytes of its input being on its own account."""
        links = self._links
        if not is_first:
            return self._up(option.forward_peak_bytes + links.backward[last] + got)
        before = links.before_forward[block] - (0 if block else links.passed[0])
        return self._up(max(option.forward_peak_bytes + links.forward[block], before) + got)

    def _rest(self, start: int, last: int, is_first: bool, *, tight: bool, kind: int = _ANY) -> "Array":
        if is_first:
            rest: Array = self._first[kind, _TIGHT if tight else _OWN, start]
        else:
            rest = self._again[_TIGHT, start, last] if tight else self._again[_OWN, last, start]
        return rest

    def _cuts(self, start: int, last: int, *, is_first: bool) -> "Array":
        """Costs of a stretch that starts with a segment, one row for each end of it, its input being paid for."""
        if self._is_flat:
            none: Array = self._numpy.empty((0, self.slots + 1), dtype=self._numpy.float32)
            return none
        # Of a run again the last part is better off without a segment of its own; of the first run it may be one.
        stop = last + 1 if is_first else last
        rest = self._first[_ANY, _OWN] if is_first else self._again[_OWN, last]
        rows: Array = self._again[_TIGHT, start, start + 1 : stop].copy()
        rows[: last - start - 1] += rest[start + 2 : last + 1]
        if not len(rows):
            return rows
        if not is_first:
            more = self._forwards[start + 2 : stop + 1] - self._forwards[start]
            rows += more.astype(self._numpy.float32)[:, None]
        missing = self._needs.cannot_run(start, stop)
        needs = self._cut_needs(start, last, stop, is_first)
        if not missing.any() and min(needs) == max(needs):
            # Blocks that are alike need alike: one stroke for all.
            rows[:, : max(0, needs[0])] = self._numpy.inf
            return rows
        for row, needed, is_missing in zip(rows, needs, missing, strict=True):
            row[: self.slots + 1 if is_missing else max(0, needed)] = self._numpy.inf
        return rows

    def _shortest(self, start: int, last: int, *, is_first: bool) -> "Array":
        """Costs of a stretch that starts with whichever segment is cheapest."""
        rows = self._cuts(start, last, is_first=is_first)
        best: Array = rows.min(axis=0, initial=self._numpy.inf)
        return best

    def _cut_needs(self, start: int, last: int, stop: int, is_first: bool) -> list[int]:
        """Slots needed until a segment has run for the first time, for each end of it."""
        high = self._needs.of_segments(start, last, stop, is_first=is_first)
        needs: list[int] = (-((self.base - high) // self.grid.unit)).tolist()
        return needs

    def _follow(
        self,
        start: int,
        last: int,
        slots: int,
        *,
        tight: bool,
        is_first: bool,
        found: tuple[list[int], list[tuple[int, int]]],
    ) -> None:
        """Decide the options and segments of a stretch as the table says."""
        while start <= last:
            leaves = [
                (number, self._leaf(start, last, number, tight=tight, is_first=is_first))
                for number in self._options(start, is_first)
            ]
            ways = [
                (self._after(start, last, leaf, slots, is_first), number, -1)
                for number, leaf in leaves
                if slots >= leaf.needed
            ]
            left = slots - (0 if tight else self._passed[start])
            if left >= 0:
                rows = self._cuts(start, last, is_first=is_first)
                ways += [(float(row[left]), -1, start + 2 + number) for number, row in enumerate(rows)]
            _, option, end = min(ways)
            if end < 0:
                found[0][start] = option
                leaf = dict(leaves)[option]
                slots, start, tight = slots - leaf.paid, start + 1, leaf.is_out
            else:
                found[1].append((start, end))
                self._follow(start, end - 1, left, tight=True, is_first=False, found=found)
                slots, start, tight = left, end, False

    def _after(self, start: int, last: int, leaf: _Leaf, slots: int, is_first: bool) -> float:
        """Cost of a stretch that starts with a block on its own."""
        if start == last:
            return leaf.seconds
        return leaf.seconds + float(self._rest(start + 1, last, is_first, tight=leaf.is_out)[slots - leaf.paid])
