"""Exact dynamic programming over the blocks in order, as a cross-check of the integer program.

After some blocks all that matters is how many bytes they keep alive, what it costs, and which of the tensors that the
next block shares with the last one are held. A row of memory can be judged once both blocks beside it are chosen, so
that a partial choice fits or not at once; of partial choices with equal tensors held, those with more bytes and no
fewer seconds are forgotten.

It applies where every micro-batch runs all blocks forwards and then backwards, each tensor concerns two neighbouring
blocks, and nothing is offloaded.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from memplan.errors import UsageError
from memplan.plan.checkpoint.blocks.problem.copies import offloads
from memplan.plan.checkpoint.blocks.problem.memory import peak
from memplan.plan.checkpoint.blocks.problem.records import (
    BlockChoice,
    BlockProblem,
    ChoiceResult,
    ChoiceTimedOut,
    InfeasibleChoice,
    Interface,
    OptimalChoice,
    Option,
)
from memplan.plan.checkpoint.blocks.problem.seconds import extra_seconds
from memplan.plan.checkpoint.blocks.solve.symmetry import is_nested
from memplan.units import Bytes


def solve(problem: BlockProblem, budget: Bytes, *, time_limit: float) -> ChoiceResult:
    """Find the cheapest flat choice.

    Returns:
        Optimal, Infeasible with the least budget, or TimedOut.

    Raises:
        UsageError: The method does not apply to this problem.
    """
    chain = _Chain(problem)
    ends = time.monotonic() + time_limit
    try:
        options = chain.best(lambda cost, seconds, need: cost + seconds if need <= budget else None, ends)
        least = chain.best(lambda cost, _, need: max(cost, need), ends) if options is None else None
    except TimeoutError:
        return ChoiceTimedOut(best=None)
    choice = BlockChoice(options=options or least or ())
    if options is not None:
        return OptimalChoice(choice=choice, seconds=extra_seconds(problem, choice))
    most, at = peak(problem, choice)
    return InfeasibleChoice(position=at, least_bytes=most, choice=choice)


class _Partial(NamedTuple):
    """Options of the first blocks."""

    nbytes: int
    cost: float
    option: int
    before: "_Partial | None"


_Price = Callable[[float, float, int], float | None]
"""(cost so far, seconds of the option, bytes needed) to the cost with the option; None: not allowed."""


class _Chain:
    """The problem block by block; block ``count`` stands for what lies between the last forward and its backward."""

    def __init__(self, problem: BlockProblem) -> None:
        if not is_nested(problem):
            raise _not_for("blocks do not run in one order and back")
        if offloads(problem):
            raise _not_for("blocks may be offloaded")
        self._problem = problem
        self._count = len(problem.blocks)
        self._turn_of = self._turns()
        self._steady: list[int] = [position.fixed_bytes for position in problem.positions]
        self._ending: dict[int, list[int]] = defaultdict(list)
        self._starting: dict[int, list[int]] = defaultdict(list)
        self._first: dict[int, int] = {}
        for index in range(len(problem.interfaces)):
            self._place(index)
        self._at: dict[int, list[int]] = defaultdict(list)
        for at, turn in enumerate(self._turn_of):
            self._at[turn].append(at)

    def best(self, price: _Price, ends: float) -> tuple[int, ...] | None:
        """Options of least cost.

        Raises:
            TimeoutError: ``ends`` (of the monotonic clock) has passed.
        """
        fronts: dict[frozenset[int], list[_Partial]] = {frozenset(): [_Partial(0, 0.0, -1, None)]}
        for block in range(self._count + 1):
            longer: dict[frozenset[int], list[_Partial]] = defaultdict(list)
            menu = self._problem.blocks[block].options if block < self._count else (None,)
            for shared, front in fronts.items():
                for number, option in enumerate(menu):
                    holds = frozenset(option.holds) if option else frozenset()
                    need, gain = self._need(block, shared, holds, option), self._gain(block, shared, holds, option)
                    passed = holds.intersection(self._ending[block + 1])
                    seconds = option.seconds if option else 0.0
                    for partial in front:
                        cost = price(partial.cost, seconds, partial.nbytes + need)
                        if cost is not None:
                            longer[passed].append(_Partial(partial.nbytes + gain, cost, number, partial))
                    if time.monotonic() > ends:
                        raise TimeoutError
            fronts = {passed: _front(partials) for passed, partials in longer.items()}
        whole = min((partial for front in fronts.values() for partial in front), key=_cost, default=None)
        return None if whole is None else tuple(_options(whole.before))

    def _turns(self) -> list[int]:
        """For each position the block whose choice, made last, decides its memory."""
        turns, alive = [], 0
        for at, position in enumerate(self._problem.positions):
            if position.block is None:
                turns.append(alive)
                continue
            is_forward = any(at == forward for forward, _ in self._problem.blocks[position.block].spans)
            turns.append(position.block)
            alive = position.block + 1 if is_forward else position.block
        return turns

    def _place(self, index: int) -> None:
        """Count a tensor as steady where no choice matters; else find the one or two blocks that it concerns."""
        interface = self._problem.interfaces[index]
        spans = [block.spans[interface.micro_batch] for block in self._problem.blocks]
        holders = [k for k, b in enumerate(self._problem.blocks) if any(index in o.holds for o in b.options)]
        first = min(holders, default=None)
        if first is None or all(index in option.holds for option in self._problem.blocks[first].options):
            # The first holder's backward comes last.
            until = interface.forward_end if first is None else max(interface.forward_end, spans[first][1])
            self._keep(interface, until, self._count + 1)
            return
        reach = [self._turn_of[at] for at in range(interface.born + 1, interface.forward_end + 1)]
        last = max([*holders, *reach])
        is_known_before = interface.born >= spans[first][0] or interface.forward_end >= spans[first][0]
        if last - first > 1 or interface.born > spans[first][0] or not is_known_before:
            raise _not_for("a tensor concerns more than two neighbouring blocks")
        self._first[index] = first
        self._ending[last].append(index)
        if last > first:
            self._starting[first].append(index)
        self._keep(interface, interface.forward_end, first)

    def _keep(self, interface: Interface, until: int, before: int) -> None:
        """Count a tensor at the positions that are decided before block ``before`` is."""
        for at in range(interface.born + 1, until + 1):
            if self._turn_of[at] < before:
                self._steady[at] += interface.nbytes

    def _need(self, block: int, shared: frozenset[int], holds: frozenset[int], option: Option | None) -> int:
        """Most bytes at the positions that this block decides, above what earlier blocks keep alive."""
        concerned = [(index, index in shared) for index in self._ending[block]]
        concerned += [(index, False) for index in self._starting[block]]
        needs = [
            self._steady[at]
            + self._own(block, option, at)
            + sum(self._alive(index, at, is_held, block, index in holds) for index, is_held in concerned)
            for at in self._at[block]
        ]
        return max(needs, default=0)

    def _own(self, block: int, option: Option | None, at: int) -> int:
        if option is None or self._problem.positions[at].block != block:
            return 0
        if any(at == forward for forward, _ in self._problem.blocks[block].spans):
            return option.forward_peak_bytes
        return option.kept_bytes + option.backward_peak_bytes

    def _alive(self, index: int, at: int, is_held_before: bool, block: int, is_held: bool) -> int:
        interface = self._problem.interfaces[index]
        until = interface.forward_end
        if is_held_before:
            until = max(until, self._problem.blocks[block - 1].spans[interface.micro_batch][1])
        if is_held:
            until = max(until, self._problem.blocks[block].spans[interface.micro_batch][1])
        return interface.nbytes if interface.born < at <= until else 0

    def _gain(self, block: int, shared: frozenset[int], holds: frozenset[int], option: Option | None) -> int:
        """Bytes that stay alive under all later blocks once this one is chosen."""
        if option is None:
            return 0
        held = dict.fromkeys(range(len(self._problem.blocks[0].spans)), 0)
        for index in self._ending[block]:
            if index in shared or index in holds:
                held[self._problem.interfaces[index].micro_batch] += self._problem.interfaces[index].nbytes
        if len(set(held.values())) > 1:
            raise _not_for("micro-batches hold different tensors")
        return option.kept_bytes + held[0]


def _not_for(why: str) -> UsageError:
    return UsageError(
        f"dynamic programming does not apply here: {why}", where="--method dp", hint="use --method ilp, which does"
    )


def _cost(partial: _Partial) -> float:
    return partial.cost


def _front(partials: Iterable[_Partial]) -> list[_Partial]:
    """Those that no other beats in both bytes and cost."""
    front: list[_Partial] = []
    for partial in sorted(partials, key=lambda each: (each.nbytes, each.cost)):
        if not front or partial.cost < front[-1].cost:
            front.append(partial)
    return front


def _options(partial: _Partial | None) -> list[int]:
    options: list[int] = []
    while partial is not None and partial.before is not None:
        options.append(partial.option)
        partial = partial.before
    return options[::-1]
