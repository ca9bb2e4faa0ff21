"""The memory formula as few, short linear rows: what two positions share is written once.

Options are named by their index into the block's menu; those that another option beats in everything are left out.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from memplan.plan.checkpoint.blocks.problem.records import BlockProblem, Interface, ModuleBlock, Option

Holders = tuple[tuple[int, tuple[int, ...]], ...]
"""Blocks with those of their options that hold a tensor, latest backward first: it lives if one of them is chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Bytes that are alive or not, as is chosen."""

    block: int | None
    """Its kept bytes; None: an interface tensor."""
    nbytes: int = 0
    """Size of the tensor."""
    holders: Holders = ()
    """Who keeps the tensor alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRow:
    """Bytes at some positions: ``fixed_bytes`` + everything in ``state`` + the peak of what runs."""

    state: int
    """Index into ``PositionRows.changes``: what stays."""
    block: int | None
    """The block that runs."""
    is_backward: bool
    """Which of its peaks."""
    fixed_bytes: int
    """Largest of the positions."""
    position: int
    """The first position that has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRows:
    """All rows of a problem."""

    menus: tuple[tuple[int, ...], ...]
    """Options of each block that no other beats."""
    changes: tuple[tuple[int | None, tuple[tuple[Term, int], ...]], ...]
    """Each state as an earlier one (None: empty) plus terms with their multiplicity."""
    rows: tuple[PositionRow, ...]
    """All of them, each state and run once."""
    at: tuple[int, ...]
    """The state at each position."""
    states: tuple[frozenset[tuple[Term, int]], ...]
    """The terms of each state with their multiplicity."""


def useful(block: ModuleBlock) -> tuple[int, ...]:
    """Options that no other option of the block beats or equals in everything, by index."""
    kept: list[int] = []
    for index, option in sorted(enumerate(block.options), key=lambda each: (_figures(each[1]), len(each[1].holds))):
        if not any(_beats(block.options[other], option) for other in kept):
            kept.append(index)
    return tuple(sorted(kept))


def rows_of(problem: BlockProblem, *, every_position: bool = False) -> PositionRows:
    """Write down a problem's memory.

    ``every_position`` gives one row for each position, for those who add to them what differs between positions.
    """
    menus = tuple(useful(block) for block in problem.blocks)
    fixed, changes = _changes(problem, menus)
    known: dict[frozenset[tuple[Term, int]], int] = {frozenset(): 0}
    states_at: list[int] = []
    links: list[tuple[int | None, tuple[tuple[Term, int], ...]]] = [(None, ())]
    found: dict[tuple[int, int | None, bool, int], PositionRow] = {}
    alive: Counter[Term] = Counter()
    state = 0
    for at, position in enumerate(problem.positions):
        if changes[at]:
            for term, times in changes[at].items():
                alive[term] += times
            key = frozenset((term, times) for term, times in alive.items() if times)
            if key not in known:
                known[key] = len(links)
                links.append((state, tuple((term, times) for term, times in changes[at].items() if times)))
            state = known[key]
        states_at.append(state)
        is_backward = position.block is not None and position.phase == "backward"
        runs = state, position.block, is_backward, at if every_position else 0
        if runs not in found or found[runs].fixed_bytes < fixed[at]:
            found[runs] = PositionRow(
                state=state, block=position.block, is_backward=is_backward, fixed_bytes=fixed[at], position=at
            )
    return PositionRows(
        menus=menus, changes=tuple(links), rows=tuple(found.values()), at=tuple(states_at), states=tuple(known)
    )


def lives(
    problem: BlockProblem, menus: tuple[tuple[int, ...], ...]
) -> Iterator[tuple[Interface, int, int, Holders | None]]:
    """Stretches (tensor, first, last, holders) in which tensors are alive; holders None: whatever is chosen."""
    who = _who_holds(problem, menus)
    for index, interface in enumerate(problem.interfaces):
        for stretch in _lives(problem, menus, interface, who[index]):
            yield interface, *stretch


def running_bytes(row: PositionRow, option: Option) -> int:
    """Peak of what runs in a row, under an option of its block."""
    return option.backward_peak_bytes if row.is_backward else option.forward_peak_bytes


def _figures(option: Option) -> tuple[float, ...]:
    return (
        option.seconds,
        option.kept_bytes,
        option.forward_peak_bytes,
        option.backward_peak_bytes,
        option.offloaded_bytes,
    )


def _beats(option: Option, other: Option) -> bool:
    no_worse = all(a <= b for a, b in zip(_figures(option), _figures(other), strict=True))
    return no_worse and set(option.holds) <= set(other.holds)


def _changes(problem: BlockProblem, menus: tuple[tuple[int, ...], ...]) -> tuple[list[int], list[Counter[Term]]]:
    """Return what is alive at each position whatever is chosen, and the terms that join and leave at its start."""
    count = len(problem.positions)
    steady = [0] * (count + 1)
    changes: list[Counter[Term]] = [Counter() for _ in range(count + 1)]
    for index, block in enumerate(problem.blocks):
        for forward, backward in block.spans:
            changes[forward + 1][Term(block=index)] += 1
            changes[backward + 1][Term(block=index)] -= 1
    for interface, first, last, holders in lives(problem, menus):
        if holders is None:
            steady[first] += interface.nbytes
            steady[last + 1] -= interface.nbytes
        else:
            term = Term(block=None, nbytes=interface.nbytes, holders=holders)
            changes[first][term] += 1
            changes[last + 1][term] -= 1
    total, fixed = 0, []
    for position, change in zip(problem.positions, steady, strict=False):
        total += change
        fixed.append(position.fixed_bytes + total)
    return fixed, changes


def _who_holds(
    problem: BlockProblem, menus: tuple[tuple[int, ...], ...]
) -> dict[int, list[tuple[int, tuple[int, ...]]]]:
    """For each interface tensor the blocks that may hold it, with the options under which they do."""
    who: dict[int, list[tuple[int, tuple[int, ...]]]] = defaultdict(list)
    for block, menu in enumerate(menus):
        holding: dict[int, list[int]] = defaultdict(list)
        for option in menu:
            for index in set(problem.blocks[block].options[option].holds):
                holding[index].append(option)
        for index, options in holding.items():
            who[index].append((block, tuple(options)))
    return who


def _lives(
    problem: BlockProblem,
    menus: tuple[tuple[int, ...], ...],
    interface: Interface,
    who: list[tuple[int, tuple[int, ...]]],
) -> Iterator[tuple[int, int, Holders | None]]:
    """Stretches (first, last, holders) of a tensor's life; holders None: alive whatever is chosen."""

    def backward(holder: tuple[int, tuple[int, ...]]) -> int:
        return problem.blocks[holder[0]].spans[interface.micro_batch][1]

    until, holders = interface.forward_end, sorted(who, key=backward, reverse=True)
    always = [backward(holder) for holder in holders if len(holder[1]) == len(menus[holder[0]])]
    until = max([until, *always])
    yield interface.born + 1, max(until, interface.born), None
    first = max(until, interface.born) + 1
    for number in range(len(holders), 0, -1):
        last = backward(holders[number - 1])
        if last >= first:
            yield first, last, tuple(holders[:number])
            first = last + 1
