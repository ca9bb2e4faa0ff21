"""Make a failing program smaller for as long as it fails in the same way."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from differential.program import Block, DoesNotFitError, Program, shapes
from differential.training import LOSSES, OPTIMIZERS, PLAIN_LOOP, PLAIN_SETUP, PLAIN_WRAP

_MOST_RUNS = 60
"""Programs that are tried for one failure."""


def shrunk(program: Program, fails: Callable[[Program], bool]) -> Program:
    """The smallest program found that still fails.

    Args:
        program: One that fails.
        fails: Does a program fail in the same way?
    """
    runs = 0
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(program):
            if not _fits(smaller):
                continue
            runs += 1
            if runs > _MOST_RUNS:
                return program
            if fails(smaller):
                program, changed = smaller, True
                break
    return program


def _fits(program: Program) -> bool:
    try:
        return bool(list(shapes(program)))
    except DoesNotFitError:
        return False


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with one thing less, the largest cuts first."""
    yield from (each for each in _plainer(program) if each != program)
    for index, block in enumerate(program.blocks):
        if len(program.blocks) > 1:
            yield _with(program, index, None)
        if block.wrap is not PLAIN_WRAP:
            yield _with(program, index, replace(block, wrap=PLAIN_WRAP))
    for index, block in enumerate(program.blocks):
        for place in range(len(block.pieces)):
            rest = block.pieces[:place] + block.pieces[place + 1 :]
            if rest:
                yield _with(program, index, replace(block, pieces=rest))


def _plainer(program: Program) -> Iterator[Program]:
    """Programs with the plainest of what stands around the blocks."""
    yield replace(program, setup=PLAIN_SETUP)
    yield replace(program, loss=LOSSES[0])
    if not program.optimizer.loops:
        yield replace(program, loop=PLAIN_LOOP)
        yield replace(program, optimizer=OPTIMIZERS[0])


def _with(program: Program, index: int, block: Block | None) -> Program:
    blocks = [*program.blocks[:index], *([block] if block else []), *program.blocks[index + 1 :]]
    return replace(program, blocks=tuple(blocks))
