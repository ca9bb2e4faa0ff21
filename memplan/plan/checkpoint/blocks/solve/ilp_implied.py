"""Leave out rows of the integer program that another row implies whatever is chosen."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

from memplan.plan.checkpoint.blocks.problem.records import BlockProblem
from memplan.plan.checkpoint.blocks.solve.ilp_rows import PositionRow, PositionRows, Term, running_bytes


def without_implied(problem: BlockProblem, rows: PositionRows) -> PositionRows:
    """Leave out forwards that their backward implies, and stretches between blocks that a run beside them implies.

    Args:
        problem: The step and its blocks.
        rows: All rows.
    """
    return replace(rows, rows=tuple(_needed(problem, rows)))


def _needed(problem: BlockProblem, rows: PositionRows) -> Iterator[PositionRow]:
    # A backward is never left out and a forward only for a backward, so that no two rows vanish for each other.
    ordered = sorted(rows.rows, key=lambda row: row.position)
    backwards = defaultdict(list)
    for row in ordered:
        if row.is_backward:
            backwards[row.block].append(row)
    for place, row in enumerate(ordered):
        others: list[PositionRow] = []
        if row.block is None:
            others += [each for each in ordered[place + 1 :] if each.block is not None][:1]
            others += [each for each in reversed(ordered[:place]) if each.block is not None][:1]
        elif not row.is_backward:
            others = backwards[row.block]
        if not any(_is_implied(problem, rows, row, other) for other in others):
            yield row


def _is_implied(problem: BlockProblem, rows: PositionRows, row: PositionRow, other: PositionRow) -> bool:
    """Is ``other`` at least as high under every choice?"""
    change: Counter[Term] = Counter(dict(rows.states[row.state]))
    change.subtract(dict(rows.states[other.state]))
    excess = row.fixed_bytes - other.fixed_bytes
    of_block: dict[int, list[tuple[Term, int]]] = defaultdict(list)
    for term, times in change.items():
        if term.block is None and len(term.holders) > 1:
            excess += max(0, times) * term.nbytes
        elif times:
            of_block[term.holders[0][0] if term.block is None else term.block].append((term, times))
    blocks = {*of_block, *(block for block in (row.block, other.block) if block is not None)}
    return excess + sum(_most(problem, rows, (row, other), block, of_block[block]) for block in blocks) <= 0


def _most(
    problem: BlockProblem,
    rows: PositionRows,
    pair: tuple[PositionRow, PositionRow],
    block: int,
    terms: list[tuple[Term, int]],
) -> int:
    """Most bytes by which one block can raise the first row above the second."""
    row, other = pair
    found = []
    for number in rows.menus[block]:
        option = problem.blocks[block].options[number]
        total = sum(
            times * (option.kept_bytes if term.block is not None else term.nbytes * (number in term.holders[0][1]))
            for term, times in terms
        )
        total += running_bytes(row, option) if row.block == block else 0
        total -= running_bytes(other, option) if other.block == block else 0
        found.append(total)
    return max(found)
