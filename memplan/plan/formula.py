"""Textbook arithmetic on shapes: what a model takes before anything is traced. No torch, no allocator, no kernels.

    shape + setup ─► rows (quantity, formula, bytes) ─► their sum, which docs/textbook.md holds against traces

Each row is right within what its formula says, and whole models part from the sum; docs/textbook.md says where.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from memplan.units import Bytes

FormulaPrecision = Literal["fp32", "bf16", "fp16", "mixed"]
"""All in 4 bytes; all in 2; weights, gradients and states in 4, activations and copies of weights in 2 (autocast)."""
FormulaOptimizer = Literal["adamw", "adamw-8bit", "sgd-momentum", "sgd", "adafactor"]
FormulaCheckpoint = Literal["none", "selective", "full"]
PRECISIONS, OPTIMIZERS, CHECKPOINTS = map(get_args, (FormulaPrecision, FormulaOptimizer, FormulaCheckpoint))

STATES: dict[str, tuple[float, str]] = {
    "adamw": (2.0, ""),
    "adamw-8bit": (0.0, "2 P, without scales"),
    "sgd-momentum": (1.0, ""),
    "sgd": (0.0, "0"),
    "adafactor": (0.0, "rows + columns, about 0"),
}
"""Optimizer → values as wide as weights for each parameter, and its formula where it is another (Kingma and Ba 2015;
Dettmers et al. 2022; Shazeer and Stern 2018)."""
VALUES_A_TOKEN, MASKS_A_TOKEN = 16, 2
"""A layer of a GPT keeps 16 h values and 2 h bytes of dropout masks for a token: 34 h in half precision (Korthikanti et
al. 2022, "Reducing Activation Recomputation in Large Transformer Models", section 4.1)."""
POSITION_BYTES = 8
"""Of a value among the largest: ``torch.topk`` returns positions as int64."""
SCORES, SCORE_MASKS = 2, 1
"""Standard attention keeps two values and one byte of mask for each pair of tokens and head (the same)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What formulas know of a transformer."""

    parameters: int
    """P."""
    layers: int
    """L."""
    hidden: int
    """h: width of the residual stream."""
    heads: int
    """a: query heads."""
    kv_heads: int
    """k: heads of keys and values."""
    vocabulary: int | None = None
    """V; None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaSetup:
    """What formulas know of a run."""

    batch_size: int
    """b: samples at once."""
    seq_len: int
    """s: tokens of each; of a cache, tokens that it holds."""
    precision: FormulaPrecision = "mixed"
    optimizer: FormulaOptimizer = "adamw"
    checkpoint: FormulaCheckpoint = "none"
    flash: bool = True
    """Does a fused kernel keep scores off memory?"""
    zero: int = 0
    """Stage of ZeRO: 1 shares out states, 2 gradients too, 3 weights too (Rajbhandari et al. 2020)."""
    gpus: int = 1
    """N: ranks that share."""
    top_gradients: float | None = None
    """κ: share of each gradient that ranks send to each other, the largest values; None: all of it."""
    train: bool = True
    """A training step, or inference with a cache of keys and values?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaRow:
    """One quantity."""

    quantity: str
    """In words."""
    formula: str
    """In the letters of ``ModelShape`` and ``FormulaSetup``; w and e are bytes of a weight and of an activation."""
    nbytes: Bytes
    """On one rank."""
    counted: bool = True
    """Is it part of the sum?"""


def rows(shape: ModelShape, setup: FormulaSetup) -> tuple[FormulaRow, ...]:
    """Return the formulas' figures for one rank."""
    return tuple(_training(shape, setup) if setup.train else _inference(shape, setup))


def total(found: tuple[FormulaRow, ...]) -> Bytes:
    """Return the sum of what is counted."""
    return Bytes(sum(row.nbytes for row in found if row.counted))


def _widths(setup: FormulaSetup) -> tuple[int, int]:
    """Bytes of a weight and of an activation."""
    return (2 if setup.precision in {"bf16", "fp16"} else 4), (4 if setup.precision == "fp32" else 2)


def _shared(setup: FormulaSetup, stage: int) -> tuple[int, str]:
    """By how many ranks a quantity is divided, and how the formula says so."""
    return (setup.gpus, " / N") if setup.zero >= stage and setup.gpus > 1 else (1, "")


def _training(shape: ModelShape, setup: FormulaSetup) -> Iterator[FormulaRow]:
    weight, _ = _widths(setup)
    count = shape.parameters
    ranks, by = _shared(setup, 3)
    yield _row("weights", f"{weight} P{by}", weight * count / ranks)
    if setup.precision == "mixed":
        yield _row("autocast's copies of weights", f"2 P{by}", 2 * count / ranks)
    ranks, by = _shared(setup, 2)
    yield _row("gradients", f"{weight} P{by}", weight * count / ranks)
    if setup.top_gradients is not None:
        yield from _top_gradients(count, weight, setup.top_gradients, setup.gpus)
    ranks, by = _shared(setup, 1)
    values, words = STATES[setup.optimizer]
    each = 2.0 if setup.optimizer == "adamw-8bit" else values * weight
    yield _row(f"states of {setup.optimizer}", f"{words or f'{each:g} P'}{by}", each * count / ranks)
    yield from _activations(shape, setup)


def _top_gradients(count: int, weight: int, share: float, ranks: int) -> Iterator[FormulaRow]:
    """What sending the largest gradients alone takes: it adds to memory, and saves traffic.

    Gradients are made whole first, and what is left out waits in a residual for the next step (Aji and Heafield 2017,
    "Sparse Communication for Distributed Gradient Descent"; Stich et al. 2018, "Sparsified SGD with Memory").
    """
    pair = weight + POSITION_BYTES
    yield _row("residual of gradients", f"{weight} P", weight * count)
    yield _row("largest gradients, positions", f"{pair} κ P", pair * share * count)
    if ranks > 1:
        yield _row("those of all ranks", f"{pair} κ P N", pair * share * count * ranks)
    yield _row("sent instead of the gradients", f"{pair} κ P", pair * share * count, counted=False)


def _activations(shape: ModelShape, setup: FormulaSetup) -> Iterator[FormulaRow]:
    _, width = _widths(setup)
    tokens = setup.seq_len * setup.batch_size
    linear = VALUES_A_TOKEN * width + MASKS_A_TOKEN
    pair = SCORES * width + SCORE_MASKS
    scores = 0 if setup.flash else pair * shape.heads * setup.seq_len * tokens
    layers = {"none": shape.layers, "selective": shape.layers, "full": 1}[setup.checkpoint]
    if setup.checkpoint == "full":
        yield _row("inputs of checkpointed layers", f"{width} L s b h", width * shape.layers * tokens * shape.hidden)
    held = "" if layers == 1 else "L "
    yield _row("activations", f"{linear} {held}s b h", linear * layers * tokens * shape.hidden)
    if scores:
        # Selective checkpointing recomputes the scores, of one layer at a time.
        kept = 1 if setup.checkpoint != "none" else shape.layers
        yield _row("attention scores", f"{pair} {'' if kept == 1 else 'L '}a s² b", kept * scores)
    if shape.vocabulary is not None:
        yield _row("logits, up to", "3 x 4 s b V", 12 * tokens * shape.vocabulary, counted=False)


def _inference(shape: ModelShape, setup: FormulaSetup) -> Iterator[FormulaRow]:
    weight, width = _widths(setup)
    weight = width if setup.precision == "mixed" else weight
    ranks, by = _shared(setup, 3)
    yield _row("weights", f"{weight} P{by}", weight * shape.parameters / ranks)
    head = shape.hidden // shape.heads
    cached = 2 * shape.layers * shape.kv_heads * head * setup.seq_len * setup.batch_size * width
    yield _row("cache of keys and values", f"{width} x 2 L k (h / a) s b", cached)


def _row(quantity: str, formula: str, nbytes: float, *, counted: bool = True) -> FormulaRow:
    return FormulaRow(quantity=quantity, formula=formula, nbytes=Bytes(round(nbytes)), counted=counted)
