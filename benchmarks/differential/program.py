"""A program as a frozen record of named pieces, and the target file that it is written out as.

Pieces stand in tables (``layers``, ``operations``, ``training``). A program names them with their sizes, so that one
record always gives the same file, and a smaller program is a smaller record.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["ids", "flat", "sequence", "signal", "image", "volume"]


class Shape(NamedTuple):
    """What one sample looks like between two pieces; the batch comes first and the channels where torch has them."""

    kind: Kind
    """``flat`` is (C), ``sequence`` (T, C), ``ids`` (T) of integers, the others (C, *size)."""
    channels: int
    size: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        """Elements of one sample."""
        return self.channels * math.prod(self.size)


def same(shape: Shape, size: int) -> Shape:
    """A piece that keeps the shape."""
    del size
    return shape


def anything(shape: Shape) -> bool:
    """A piece that takes every shape of its kinds."""
    del shape
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One row of the grammar: lines with ``{i}`` its number, ``{c}`` channels, ``{n}`` its size, ``{t} {h} {w}``."""

    name: str
    """How programs call it."""
    feature: str
    """Its row in the table of results."""
    on: tuple[Kind, ...]
    """Kinds of shape that it takes."""
    init: str = ""
    """Lines of the block's ``__init__``."""
    forward: str
    """Lines of the block's ``forward``: they read and bind ``x``."""
    out: Callable[[Shape, int], Shape] = same
    """(shape, size) → shape of the result."""
    fits: Callable[[Shape], bool] = anything
    """Which shapes of these kinds it takes."""
    above: str = ""
    """Lines of the file (functions, classes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrap:
    """How a block is called."""

    name: str
    feature: str
    call: str
    """Lines that bind ``x`` to the block's result; ``{block}`` is the block."""
    setup: str = ""
    """Lines after the block is made."""
    keeps_shape: bool = False
    """Is it for blocks alone whose result has their argument's shape?"""
    above: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What makes a scalar of the model's output."""

    name: str
    feature: str
    value: str
    """An expression of ``output`` and ``target``."""
    target: str = ""
    """An expression of the batch's second item, with ``{b} {c} {t}``; empty: there is none."""
    on: tuple[Kind, ...] = ("flat", "sequence", "signal", "image", "volume")


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """What updates the weights."""

    name: str
    feature: str
    value: str
    """An expression of ``parameters``."""
    loops: tuple[str, ...] = ()
    """Loops that it goes with; empty: all that need no optimizer of their own."""
    steps: int = 3
    """Real steps after which the peak has settled."""


class Part(NamedTuple):
    """Lines of a script's main part."""

    name: str
    lines: str
    """With ``{b}``, the batch size; loops have ``...`` where the step is."""


Place = Literal["module", "function", "class"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Main:
    """The main part of a program that is a script."""

    loop: Part
    """Where batches come from."""
    beside: Part
    """What is done behind each step."""
    place: Place
    """Where it stands."""

    @property
    def features(self) -> tuple[str, ...]:
        """Rows of the table that it counts for."""
        return f"batches {self.loop.name}", f"beside {self.beside.name}", f"in a {self.place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One optimizer step."""

    name: str
    feature: str
    step: str = ""
    """Body of ``train_step``; empty: memplan's own loop, with the options."""
    above: str = ""
    grad_accum: int = 1
    clip_grad_norm: float | None = None
    autocast: bool = False
    steps: int = 3
    """Real steps after which the peak has settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is done to the whole model once it is built."""

    name: str
    feature: str
    lines: str
    """Lines of ``model()``; they see ``net``."""
    above: str = ""


class Chosen(NamedTuple):
    """A piece of a program."""

    piece: Piece
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Consecutive pieces in a module of their own."""

    pieces: tuple[Chosen, ...]
    wrap: Wrap


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A whole program."""

    batch_size: int
    start: Shape
    blocks: tuple[Block, ...]
    loss: Loss
    optimizer: Optimizer
    loop: Loop
    setup: Setup
    main: Main | None = None
    """Makes a script of it; None: it is a target file."""

    @property
    def steps(self) -> int:
        """Real steps after which the peak has settled."""
        return max(self.optimizer.steps, self.loop.steps)

    @property
    def features(self) -> frozenset[str]:
        """Rows of the table that it counts for."""
        pieces = [chosen.piece.feature for block in self.blocks for chosen in block.pieces]
        others = (self.loss, self.optimizer, self.loop, self.setup, *(block.wrap for block in self.blocks))
        parts = self.main.features if self.main else ()
        return frozenset([*pieces, *(each.feature for each in others), *parts]) - {""}

    @property
    def words(self) -> str:
        """Its pieces by name."""
        blocks = [
            "+".join(f"{chosen.piece.name}:{chosen.size}" for chosen in block.pieces) + f"@{block.wrap.name}"
            for block in self.blocks
        ]
        start = f"{self.start.kind}{[self.batch_size, self.start.channels, *self.start.size]}"
        ends = [self.loss.name, self.optimizer.name, self.loop.name, self.setup.name]
        return " ".join([start, *blocks, *ends, *(self.main.features if self.main else ())])


class DoesNotFitError(Exception):
    """A piece does not take the shape that it is given."""


def shapes(program: Program) -> Iterator[tuple[Block, list[tuple[Chosen, Shape]], Shape]]:
    """Each block, its pieces with the shapes that they take, and the shape of its result.

    Raises:
        DoesNotFitError: A piece or a loss takes another shape.
    """
    shape = program.start
    for block in program.blocks:
        placed, before = [], shape
        for chosen in block.pieces:
            if shape.kind not in chosen.piece.on or not chosen.piece.fits(shape):
                raise DoesNotFitError(chosen.piece.name)
            placed.append((chosen, shape))
            shape = chosen.piece.out(shape, chosen.size)
        if block.wrap.keeps_shape and shape != before:
            raise DoesNotFitError(block.wrap.name)
        if before.kind == "ids" and block.wrap.name != "plain":
            raise DoesNotFitError(block.wrap.name)
        yield block, placed, shape
    if shape.kind not in program.loss.on:
        raise DoesNotFitError(program.loss.name)
