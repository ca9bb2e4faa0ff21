"""Gradients that autograd computes by another formula under a dispatch mode than in a plain run.

Some formulas of torch/csrc/autograd/FunctionsManual.cpp ask for data (is any factor zero?) and take a short way where
the answer allows it. Under a dispatch mode they never ask and always take the long way, with many more tensors
(``isTensorSubclassLike``). What the short way allocates is played here instead; the tensors of the long way that die
inside its node count for nothing.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from memplan.trace.ledger import Ledger
from memplan.units import Bytes

ASSUMED = "no factor of a product (prod, cumprod) is zero, where its gradient depends on that"
_COUNT_BYTES = 8
"""Of a number of zeros (int64)."""

Allocation = tuple[str, int]
"""A key and its bytes; 0 bytes free what the key names."""


def _product(node: Any) -> Iterator[Allocation]:
    """``prod_backward`` of a dimension: the zeros counted slice by slice, then ``grad * (result / input)``."""
    source: torch.Tensor = node._saved_self
    counts = source.numel() // source.shape[node._saved_dim] * _COUNT_BYTES
    yield "mask", source.numel()
    yield "counts", counts
    # ReduceOpsUtils.h make_reduction: on the CPU booleans are copied to the type of their sum.
    yield "cast", source.numel() * _COUNT_BYTES
    yield "cast", 0
    yield from _quotient(source)


def _whole_product(node: Any) -> Iterator[Allocation]:
    """``prod_backward`` of all elements: the zeros looked for, then ``grad * (result / input)``."""
    source: torch.Tensor = node._saved_self
    yield "mask", source.numel()
    yield "mask", 0
    yield from _quotient(source)


def _quotient(source: torch.Tensor) -> Iterator[Allocation]:
    yield "quotient", source.nbytes
    yield "gradient", source.nbytes


def _running_product(node: Any) -> Iterator[Allocation]:
    """``cumprod_backward``: the weighted results, summed from behind (turned, summed, turned), over the source."""
    source: torch.Tensor = node._saved_self
    yield "weighted", source.nbytes
    yield "mask", source.numel()
    yield "turned", source.nbytes
    yield "summed", source.nbytes
    yield "turned back", source.nbytes


FORMULAS: dict[str, Callable[[Any], Iterator[Allocation]]] = {
    "ProdBackward1": _product,
    "ProdBackward0": _whole_product,
    "CumprodBackward0": _running_product,
}
"""Name of the autograd node → what the short way allocates, in order; what is left at the end is freed there."""


class Formulas:
    """Follows which autograd node runs, and puts the short way in the place of the long one.

    Args:
        ledger: Takes the allocations.
        assume: Takes what is assumed.
    """

    def __init__(self, ledger: Ledger, assume: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._assume = assume
        self._running: tuple[str, int] | None = None
        self._first = 0
        """Number of allocations before the node's own."""

    def follow(self, node: Any) -> None:
        """Say on behalf of which autograd node the next op runs; None: of none."""
        name = "" if node is None else node.name()
        running = (name, node._sequence_nr()) if name in FORMULAS else None
        if running == self._running:
            return
        if self._running is not None:
            self._forget()
        self._running = running
        if running is not None:
            self._assume(ASSUMED)
            self._play(FORMULAS[name](node))
            self._first = len(self._ledger.entries)

    def _play(self, allocations: Iterator[Allocation]) -> None:
        held = {}
        for key, nbytes in allocations:
            if nbytes:
                held[key] = self._ledger.scratch(nbytes)
            else:
                self._ledger.release_scratch(held.pop(key))
        for identity in reversed(held.values()):
            self._ledger.release_scratch(identity)

    def _forget(self) -> None:
        """What was born for the node and has died since was the long way's own."""
        for entry in self._ledger.entries[self._first :]:
            if not entry.holders:
                entry.nbytes = Bytes(0)
