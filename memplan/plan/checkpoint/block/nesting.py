"""The table behind ``rotor``: costs of every stretch of a chain for every amount of memory.

A stretch ``s..t`` of a run again happens within the backward of block ``t``; the first run, up to the last block,
happens block by block and is held apart. Either somebody else keeps the input of ``s`` alive (*tight*), or ``s`` pays
for it if it holds it (*own*). What stays is rounded up to slots; what is needed for a moment is compared with them.
"""

import math
import time
from typing import TYPE_CHECKING

from memplan.plan.checkpoint.block.greedy import cheapest
from memplan.plan.checkpoint.block.links import links_of
from memplan.plan.checkpoint.block.memory import checkpoint_option, peak
from memplan.plan.checkpoint.block.records import Block, BlockProblem, Choice, Option
from memplan.runtime.checkpoint.records import Action

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Array = NDArray[float32]

SLOTS = 2000
"""Units at most for what a plan can change: with 96 blocks a table of 150 MB, filled in about a second."""
_TIGHT, _OWN = 0, 1


class Table:
    """The recursion's costs for every stretch of blocks and every number of slots.

    Args:
        problem: A nested chain.
        ends: Moment of the monotonic clock at which to give up.

    Raises:
        TimeoutError: It is over.
    """

    def __init__(self, problem: BlockProblem, ends: float) -> None:
        import numpy as np

        self._numpy, self._problem = np, problem
        self._links = links_of(problem)
        self._count = count = len(problem.blocks)
        self._base = min((*self._links.forward, *self._links.backward))
        self._unit, self._slots = self._grid()
        self._passed = [self._up(size) for size in self._links.passed]
        self._once_more = [_checkpoint(block) for block in problem.blocks]
        shape = (2, count, count, self._slots + 1)
        # [tight][s][t] and, for sums over consecutive memory, [own][t][s].
        self._again = np.full(shape, np.inf, dtype=np.float32)
        self._first = np.full((2, count, self._slots + 1), np.inf, dtype=np.float32)
        for start in reversed(range(count)):
            for last in range(start, count):
                if time.monotonic() > ends:
                    raise TimeoutError
                self._again[_TIGHT, start, last], self._again[_OWN, last, start] = self._costs(start, last, False)
            self._first[_TIGHT, start], self._first[_OWN, start] = self._costs(start, count - 1, True)

    def within(self, budget: int) -> Choice | None:
        """The cheapest choice that meets a budget in exact bytes."""
        easy = cheapest(self._problem)
        if peak(self._problem, easy)[0] <= budget:
            return easy
        slots = min(max((budget - self._base) // self._unit, -1), self._slots)
        # Rounding gave away up to a slot for each block: first try what may fit nevertheless.
        extra = [self._count >> shift for shift in range(self._count.bit_length() + 1)]
        for more in (min(slots + each, self._slots) for each in extra):
            choice = self._choice(more)
            if choice is not None and peak(self._problem, choice)[0] <= budget:
                return choice
        least = self.least()
        return least if peak(self._problem, least)[0] <= budget else None

    def least(self) -> Choice:
        """The choice for the fewest slots that suffice."""
        reachable = self._numpy.flatnonzero(self._numpy.isfinite(self._first[_OWN, 0]))
        choice = self._choice(int(reachable[0])) if len(reachable) else None
        return choice or cheapest(self._problem)

    def _grid(self) -> tuple[int, int]:
        """Unit and number of slots that round little of what is kept."""
        extent = peak(self._problem, cheapest(self._problem))[0] - self._base
        sizes: list[int] = [option.kept_bytes for block in self._problem.blocks for option in block.options]
        sizes += self._links.passed

        def lost(unit: int) -> int:
            return sum(-size % unit for size in sizes)

        units = {max(1, -(-extent // slots)) for slots in range(SLOTS // 2, SLOTS + 1, 4)}
        unit = min(sorted(units), key=lost)
        return unit, -(-extent // unit)

    def _up(self, size: int) -> int:
        return -(-size // self._unit)

    def _costs(self, start: int, last: int, is_first: bool) -> "tuple[Array, Array]":
        """Costs of a stretch for every number of slots, tight and not."""
        best = []
        segment = self._cuts(start, last, is_first)
        shortest = segment.min(axis=0) if len(segment) else None
        for tight in (True, False):
            ways = [self._leaf(start, last, o, tight, is_first) for o in self._options(start, is_first)]
            if shortest is not None:
                ways.append(self._shifted(shortest, 0 if tight else self._passed[start]))
            best.append(self._numpy.min(ways, axis=0) if ways else self._again[_TIGHT, start, last])
        return best[0], best[1]

    def _options(self, block: int, is_first: bool) -> list[int]:
        options = enumerate(self._problem.blocks[block].options)
        if is_first:
            return [number for number, option in options if not option.offloaded_bytes]
        return [number for number, option in options if option.action in (Action.KEEP, Action.CHECKPOINT)]

    def _leaf(self, start: int, last: int, number: int, tight: bool, is_first: bool) -> "Array":
        """Costs of a stretch whose first block runs on its own, under an option."""
        option, links = self._problem.blocks[start].options[number], self._links
        paid, is_out = self._paid(start, option, tight)
        runs = is_first or start < last or option.action is not Action.CHECKPOINT
        needs = [paid + self._up(option.backward_peak_bytes + links.backward[start] - self._base)]
        if (is_first or start < last) and links.before_backward[start]:
            made = 0 if is_out or start < self._count - 1 else self._passed[-1]
            needs.append(paid + made + self._up(links.before_backward[start] - self._base))
        if runs:
            needs.append(self._running(start, last, option, is_first, 0 if tight else links.passed[start]))
        rest = self._rest(start + 1, last, is_first, tight=is_out) if start < last else None
        costs = self._shifted(rest, paid)
        costs[: max(0, *needs)] = self._numpy.inf
        once_more = self._once_more[start]
        again = 0.0 if is_first or not runs else once_more.seconds if once_more else math.inf
        return costs + self._numpy.float32(option.seconds + again)

    def _paid(self, start: int, option: Option, tight: bool) -> tuple[int, bool]:
        """Slots that stay taken once a block has run, and whether its result is among them."""
        holds = frozenset(option.holds)
        is_out = bool(holds & self._links.groups[start + 1])
        paid = self._up(option.kept_bytes) + (self._passed[start + 1] if is_out else 0)
        if not tight and holds & self._links.groups[start]:
            paid += self._passed[start]
        return paid, is_out

    def _rest(self, start: int, last: int, is_first: bool, *, tight: bool) -> "Array":
        if is_first:
            rest: Array = self._first[_TIGHT if tight else _OWN, start]
        else:
            rest = self._again[_TIGHT, start, last] if tight else self._again[_OWN, last, start]
        return rest

    def _cuts(self, start: int, last: int, is_first: bool) -> "Array":
        """Costs of a stretch that starts with a segment, one row for each end of it, its input being paid for."""
        # Of a run again the last part is better off without a segment of its own; of the first run it may be one.
        stop = last + 1 if is_first else last
        rest = self._first[_OWN] if is_first else self._again[_OWN, last]
        rows: Array = self._again[_TIGHT, start, start + 1 : stop].copy()
        rows[: last - start - 1] += rest[start + 2 : last + 1]
        need, cost = 0, 0.0
        for block in range(start, stop):
            option = self._once_more[block]
            if option is None:
                rows[max(block - start - 1, 0) :] = self._numpy.inf
                break
            got = self._links.passed[block] if block > start else 0
            need = max(need, self._running(block, last, option, is_first, got))
            cost += 0.0 if is_first else option.seconds
            if block > start:
                row = rows[block - start - 1]
                row[: max(need, self._up(self._links.before_backward[block] - self._base))] = self._numpy.inf
                row += self._numpy.float32(cost)
        return rows

    def _running(self, block: int, last: int, option: Option, is_first: bool, got: int) -> int:
        """Slots needed until a block's forward has run, ``got`` bytes of its input being on its own account."""
        links = self._links
        steady = links.forward[block] if is_first else links.backward[last]
        high = option.forward_peak_bytes + steady + got
        if is_first:
            # What the first block gets is reckoned with in the gap before it, where it may not be made yet.
            high = max(high, links.before_forward[block] + got - (0 if block else links.passed[0]))
        return self._up(high - self._base)

    def _shifted(self, costs: "Array | None", slots: int) -> "Array":
        """Costs when that many slots are taken already; None: nothing is left to run."""
        moved = self._numpy.full(self._slots + 1, self._numpy.inf, dtype=self._numpy.float32)
        if slots <= self._slots:
            moved[slots:] = 0.0 if costs is None else costs[: self._slots + 1 - slots]
        return moved

    def _choice(self, slots: int) -> Choice | None:
        """The cheapest choice for a number of slots."""
        if slots < 0 or not math.isfinite(self._first[_OWN, 0, slots]):
            return None
        options, segments = [0] * self._count, list[tuple[int, int]]()
        self._follow(0, self._count - 1, slots, tight=False, is_first=True, found=(options, segments))
        return Choice(options=tuple(options), segments=tuple(segments))

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
            ways = [
                (float(self._leaf(start, last, o, tight, is_first)[slots]), o, -1)
                for o in self._options(start, is_first)
            ]
            left = slots - (0 if tight else self._passed[start])
            if left >= 0:
                rows = self._cuts(start, last, is_first)
                ways += [(float(row[left]), -1, start + 2 + number) for number, row in enumerate(rows)]
            _, option, end = min(ways)
            if end < 0:
                found[0][start] = option
                paid, tight = self._paid(start, self._problem.blocks[start].options[option], tight)
                slots, start = slots - paid, start + 1
            else:
                found[1].append((start, end))
                self._follow(start, end - 1, left, tight=True, is_first=False, found=found)
                slots, start, tight = left, end, False


def _checkpoint(block: Block) -> Option | None:
    try:
        return checkpoint_option(block)
    except LookupError:
        return None
