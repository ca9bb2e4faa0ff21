"""Blocks of one kind may change places: of all equally good choices only the one that keeps latest is looked for.

Let ``i`` run before ``j``, both of one kind. Whatever ``i`` keeps is alive during all that ``j`` does: the option that
keeps less belongs to ``i``. The exchange is safe where it cannot break a row of ``i`` or ``j`` themselves: each of
their four rows after it has to be implied by one before it. Options for which that cannot be shown, and all that keep
something between the two, share one rank: no order is asked for among them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, combinations, pairwise

from memplan.plan.checkpoint.blocks.problem.memory import peak
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem, Option
from memplan.plan.checkpoint.blocks.solve.ilp_rows import PositionRows, lives
from memplan.units import Bytes


def earliest_first(problem: BlockProblem, choice: BlockChoice, budget: int) -> BlockChoice:
    """A choice with the options of equal blocks in order, least kept first, where that fits just as well.

    Where no order could be asked for beforehand, one that is found may look arbitrary.

    It is a flat choice, and nothing is offloaded under it.
    """
    alike: dict[tuple[Option, ...], list[int]] = defaultdict(list)
    for index, block in enumerate(problem.blocks):
        alike[tuple(replace(option, holds=()) for option in block.options)].append(index)
    options = list(choice.options)
    for menu, members in alike.items():
        places = {number: (option.kept_bytes, -option.seconds) for number, option in enumerate(menu)}
        order = sorted((choice.options[index] for index in members), key=places.__getitem__)
        for index, number in zip(members, order, strict=True):
            options[index] = number
    ordered = replace(choice, options=tuple(options))
    return ordered if peak(problem, ordered)[0] <= budget else choice


def is_nested(problem: BlockProblem) -> bool:
    """Does each micro-batch run all forwards in the order of the blocks, then all backwards in reverse, on its own?"""
    if len({len(block.spans) for block in problem.blocks}) > 1:
        return False
    previous = -1
    for batch in range(len(problem.blocks[0].spans)):
        forwards = [block.spans[batch][0] for block in problem.blocks]
        backwards = [block.spans[batch][1] for block in reversed(problem.blocks)]
        for at in (*forwards, *backwards):
            if at <= previous:
                return False
            previous = at
    return True


def ordered_pairs(problem: BlockProblem, rows: PositionRows) -> Iterator[tuple[int, int, dict[int, int]]]:
    """Pairs (earlier, later, rank of each option) of blocks of one kind whose ranks may be asked to rise.

    The rows are those of the problem without implied ones.
    """
    runs = Counter((row.block, row.is_backward) for row in rows.rows if row.block is not None)
    tensors = _own_tensors(problem, rows)
    if not is_nested(problem) or max(runs.values()) > 1:
        return
    steady = {(row.block, row.is_backward): row.fixed_bytes for row in rows.rows}
    for kind in {block.kind for block in problem.blocks}:
        members = [index for index, block in enumerate(problem.blocks) if block.kind == kind]
        for earlier, later in pairwise(members):
            own = tensors[earlier]
            if own is None or own != tensors[later] or not _are_alike(problem, rows, earlier, later):
                continue
            menu = _with_tensors(problem, rows, earlier, own)
            joined = {
                place
                for (low, (_, less)), (high, (_, more)) in combinations(enumerate(menu), 2)
                if not _is_safe(less, more, earlier, later, steady)
                for place in range(low + 1, high + 1)
            }
            ranks = accumulate(int(place > 0 and place not in joined) for place in range(len(menu)))
            if len(joined) < len(menu) - 1:
                yield earlier, later, {number: rank for (number, _), rank in zip(menu, ranks, strict=True)}


def _own_tensors(problem: BlockProblem, rows: PositionRows) -> "list[Counter[tuple[int, tuple[int, ...]]] | None]":
    """For each block the tensors (bytes, options) that it alone holds or not, through its own backward.

    They are as good as kept if no row is left between its forward and the end of their life in forward. None for a
    block that may hold a tensor of another sort: what it holds cannot be exchanged with what others hold.
    """
    left = {row.state for row in rows.rows if row.block is None}
    batches = range(len(problem.blocks[0].spans))
    own = [[Counter[tuple[int, tuple[int, ...]]]() for _ in batches] for _ in problem.blocks]
    odd: set[int] = set()
    for interface, first, last, holders in lives(problem, rows.menus):
        if holders is None:
            continue
        block, options = holders[0]
        forward, backward = problem.blocks[block].spans[interface.micro_batch]
        between = range(forward + 1, first)
        is_plain = len(holders) == 1 and last == backward and first > forward
        if not is_plain or any(problem.positions[at].block is not None or rows.at[at] in left for at in between):
            odd.update(holder for holder, _ in holders)
        else:
            own[block][interface.micro_batch][interface.nbytes, options] += 1
    odd |= {block for block, each in enumerate(own) if any(tensors != each[0] for tensors in each)}
    return [None if block in odd else each[0] for block, each in enumerate(own)]


def _with_tensors(
    problem: BlockProblem, rows: PositionRows, block: int, tensors: "Counter[tuple[int, tuple[int, ...]]]"
) -> list[tuple[int, Option]]:
    """Useful options of a block with its own tensors as kept bytes, from what keeps least to what keeps most."""
    menu = []
    for number in rows.menus[block]:
        option = problem.blocks[block].options[number]
        held = sum(nbytes * times for (nbytes, options), times in tensors.items() if number in options)
        menu.append((number, replace(option, kept_bytes=Bytes(option.kept_bytes + held))))
    return sorted(menu, key=lambda each: (each[1].kept_bytes, each[0]))


def _are_alike(problem: BlockProblem, rows: PositionRows, one: int, other: int) -> bool:
    """The same useful options with the same figures."""
    if rows.menus[one] != rows.menus[other]:
        return False
    return all(
        replace(problem.blocks[one].options[option], holds=())
        == replace(problem.blocks[other].options[option], holds=())
        for option in rows.menus[one]
    )


def _is_safe(less: Option, more: Option, earlier: int, later: int, steady: dict[tuple[int | None, bool], int]) -> bool:
    """May the earlier block change ``more`` for ``less``, which keeps no more, with the later one?

    Args:
        less: The option that moves to the earlier block.
        more: The option that moves to the later block.
        earlier: Index of that block.
        later: Index of that block.
        steady: Bytes that no choice changes, for each block's forward and backward that has a row.
    """
    saved = more.kept_bytes - less.kept_bytes

    def is_fine_early(is_backward: bool, growth: int) -> bool:
        # By the earlier block's own row, or by that of the later one, beneath which ``more`` was kept.
        own, other = steady.get((earlier, is_backward)), steady.get((later, is_backward))
        return own is None or growth <= 0 or (other is not None and own <= other + more.kept_bytes)

    def is_fine_late(is_backward: bool, growth: int) -> bool:
        # By the later block's own row.
        return (later, is_backward) not in steady or growth <= 0

    forward = more.forward_peak_bytes - less.forward_peak_bytes
    backward = more.backward_peak_bytes - less.backward_peak_bytes
    return (
        is_fine_early(False, -forward)
        and is_fine_early(True, -backward - saved)
        and is_fine_late(False, forward - saved)
        and is_fine_late(True, backward)
    )
