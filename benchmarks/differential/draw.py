"""Draw programs by a seed: the same seed and number give the same program on every machine."""

import random
from collections.abc import Sequence
from dataclasses import replace

from differential.layers import LAYERS
from differential.operations import OPERATIONS
from differential.program import Block, Chosen, DoesNotFitError, Loop, Optimizer, Piece, Program, Shape, shapes
from differential.training import (
    LOOPS,
    LOSSES,
    OPTIMIZERS,
    PLAIN_LOOP,
    PLAIN_SETUP,
    PLAIN_WRAP,
    SETUPS,
    WRAPS,
)

PIECES = (*LAYERS, *OPERATIONS)
FEATURES = tuple(
    sorted({each.feature for table in (PIECES, WRAPS, SETUPS, LOSSES, OPTIMIZERS, LOOPS) for each in table})
)
"""Rows of the table."""
_SIZES = {
    "flat": (64, 96, 128, 192, 256, 384, 512, 768),
    "sequence": (32, 48, 64, 96, 128, 192, 256),
    "signal": (16, 24, 32, 48, 64, 96),
    "image": (8, 12, 16, 24, 32, 48, 64),
    "volume": (4, 8, 12, 16),
    "ids": (32, 48, 64, 96, 128),
}
"""Channels that a piece may be given."""
MOST_ELEMENTS = 2**20
"""Of any tensor between two pieces: 4 MiB."""
_WITH_WEIGHTS = frozenset(
    {"linear", "mixed types", "attention", "recurrent", "convolution", "convolution 3d", "embedding"}
)
_ATTEMPTS = 10_000


def draw(seed: int, number: int, only: str = "") -> Program:
    """A program.

    Args:
        seed: Of the run.
        number: Which program of it.
        only: A feature that it must have; empty for none.
    """
    rng = random.Random(f"{seed}/{number}")
    for _ in range(_ATTEMPTS):
        program = _attempt(rng, only)
        try:
            placed = list(shapes(program))
        except DoesNotFitError:
            continue
        if (not only or only in program.features) and all(_is_modest(program, shape) for *_, shape in placed):
            return program
    raise ValueError(f"no program has the feature {only!r}")


def _attempt(rng: random.Random, only: str) -> Program:
    start, batch_size = _start(rng)
    shape, blocks = start, []
    for index in range(rng.randint(1, 3)):
        pieces, shape = _pieces(rng, shape, batch_size, only)
        if not pieces:
            break
        wrap = rng.choice(WRAPS) if rng.random() < 0.5 and (index or start.kind != "ids") else PLAIN_WRAP
        blocks.append(Block(pieces=tuple(pieces), wrap=wrap))
    if blocks and blocks[-1].wrap.name == "no_grad":
        # Nothing would be left to train.
        blocks[-1] = replace(blocks[-1], wrap=PLAIN_WRAP)
    optimizer = rng.choice(OPTIMIZERS)
    return Program(
        batch_size=batch_size,
        start=start,
        blocks=tuple(blocks),
        loss=rng.choice([loss for loss in LOSSES if shape.kind in loss.on] or LOSSES),
        optimizer=optimizer,
        loop=_loop(rng, optimizer),
        setup=rng.choice(SETUPS) if rng.random() < 0.3 else PLAIN_SETUP,
    )


def _loop(rng: random.Random, optimizer: Optimizer) -> Loop:
    if optimizer.loops:
        return next(loop for loop in LOOPS if loop.name == rng.choice(optimizer.loops))
    return rng.choice(LOOPS) if rng.random() < 0.6 else PLAIN_LOOP


def _start(rng: random.Random) -> tuple[Shape, int]:
    starts = (
        (Shape("ids", 1, (rng.choice((32, 64, 128)),)), (8, 16, 32)),
        (Shape("flat", rng.choice((128, 256, 512, 768))), (64, 128, 256)),
        (Shape("flat", rng.choice((64, 96))), (96, 384, 512)),
        (Shape("sequence", rng.choice((32, 64, 96, 128)), (rng.choice((16, 32, 64, 128)),)), (8, 16, 32)),
        (Shape("signal", rng.choice((8, 16, 32)), (rng.choice((64, 128, 256)),)), (8, 16, 24)),
        (Shape("image", rng.choice((3, 4, 8, 16)), (rng.choice((16, 24, 32)),) * 2), (4, 8, 16)),
        (Shape("image", rng.choice((3, 8)), (48, 32)), (4, 6)),
        (Shape("volume", rng.choice((2, 4)), (8, 16, 16)), (2, 4, 8)),
    )
    start, batches = rng.choice(starts)
    return start, rng.choice(batches)


def _pieces(rng: random.Random, shape: Shape, batch_size: int, only: str) -> tuple[list[Chosen], Shape]:
    """Up to four pieces for a block, and the shape behind them."""
    pieces: list[Chosen] = []
    for _ in range(rng.randint(1, 4)):
        # Half of the pieces have weights, or little would be learned.
        table = LAYERS if rng.random() < 0.5 or shape.kind == "ids" else OPERATIONS
        chosen = _chosen(rng, table, shape, batch_size, only)
        if chosen is None:
            break
        pieces.append(chosen)
        shape = chosen.piece.out(shape, chosen.size)
    return pieces, shape


def _chosen(rng: random.Random, table: Sequence[Piece], shape: Shape, batch_size: int, only: str) -> Chosen | None:
    fitting = [piece for piece in table if shape.kind in piece.on and piece.fits(shape)]
    wanted = [piece for piece in fitting if piece.feature == only]
    fitting = wanted if wanted and rng.random() < 0.5 else fitting
    if not fitting:
        return None
    # A feature first, so that those with many pieces do not crowd out the others.
    feature = rng.choice(sorted({piece.feature for piece in fitting}))
    piece = rng.choice([piece for piece in fitting if piece.feature == feature])
    size = rng.choice(_SIZES[shape.kind])
    return Chosen(piece, size) if piece.out(shape, size).elements * batch_size <= MOST_ELEMENTS else None


def _is_modest(program: Program, shape: Shape) -> bool:
    """Is there something to train, and is no tensor between two pieces too large?"""
    trains = any(chosen.piece.feature in _WITH_WEIGHTS for block in program.blocks for chosen in block.pieces)
    return trains and shape.elements * program.batch_size <= MOST_ELEMENTS
