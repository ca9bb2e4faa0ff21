"""Gradients that autograd computes by another formula under a dispatch mode than in a plain run.

Some formulas of torch/csrc/autograd/FunctionsManual.cpp ask for data (is any factor zero?) and take a short way where
the answer allows it. Under a dispatch mode they never ask and always take the long way, with other tensors
(``isTensorSubclassLike``). What the short way allocates is played here instead; the tensors of the long way that die
inside its node count for nothing. Gradients that are themselves differentiated keep the long way: a plain run holds
less of it, from nothing on, and the report says so.
"""

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from memplan.seam.autograd import engine_run_backward, get_sequence_nr
from memplan.tracing.ledger import Ledger
from memplan.units import Bytes, StorageId

NO_ZEROS = (
    "no factor of a product (prod, cumprod) is zero, where its gradient depends on that; the upper end of the interval "
    "holds what it takes otherwise"
)
DIFFERENTIATED = (
    "gradients of gradients of a product, a maximum or a median: autograd's longer formula is counted, which holds "
    "more than that of a plain run"
)
_COUNT_BYTES = 8
"""Of a number of zeros (int64)."""

Allocation = tuple[str, int]
"""A key and its bytes; 0 bytes free what the key names."""


class _Source(NamedTuple):
    """What a node differentiates by."""

    shape: tuple[int, ...]
    itemsize: int

    @property
    def elements(self) -> int:
        """Its elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of a gradient of it."""
        return self.elements * self.itemsize


def _source(node: Any) -> _Source:
    """From what the next node expects: to look at a saved tensor would run what a checkpoint has put off."""
    consumer, position = node.next_functions[0]
    expected = consumer._input_metadata[position]
    return _Source(tuple(expected.shape), expected.dtype.itemsize)


def _signed(dim: int) -> int:
    """Autograd shows dimensions as unsigned 64-bit numbers."""
    return dim - 2**64 if dim >= 2**63 else dim


def _product(node: Any) -> Iterator[Allocation]:
    """``prod_backward`` of a dimension: the zeros counted slice by slice, then ``grad * (result / input)``."""
    source = _source(node)
    yield "mask", source.elements
    yield "counts", source.elements // source.shape[_signed(node._saved_dim)] * _COUNT_BYTES
    # ReduceOpsUtils.h make_reduction: on the CPU booleans are copied to the type of their sum.
    yield "cast", source.elements * _COUNT_BYTES
    yield "cast", 0
    yield from _quotient(source)


def _whole_product(node: Any) -> Iterator[Allocation]:
    """``prod_backward`` of all elements: the zeros looked for, then ``grad * (result / input)``."""
    source = _source(node)
    yield "mask", source.elements
    yield "mask", 0
    yield from _quotient(source)


def _quotient(source: _Source) -> Iterator[Allocation]:
    yield "quotient", source.nbytes
    yield "gradient", source.nbytes


def _running_product(node: Any) -> Iterator[Allocation]:
    """``cumprod_backward``: the weighted results, summed from behind (turned, summed, turned), over the source."""
    source = _source(node)
    yield "weighted", source.nbytes
    yield "mask", source.elements
    yield "turned", source.nbytes
    yield "summed", source.nbytes
    yield "turned back", source.nbytes


def _shared_out(node: Any) -> Iterator[Allocation]:
    """``evenly_distribute_backward`` on the CPU: zeros, filled where the extreme is."""
    source = _source(node)
    yield "mask", source.elements
    yield "gradient", source.nbytes
    yield "cast", source.elements * _COUNT_BYTES


Formula = Callable[[Any], Iterator[Allocation]]

OF_PRODUCTS: dict[str, Formula] = {
    "ProdBackward1": _product,
    "ProdBackward0": _whole_product,
    "CumprodBackward0": _running_product,
}
"""Name of the autograd node → what the short way allocates, in order; what is left at the end is freed there."""

_ASKED_BY: dict[str, frozenset[str]] = {
    "ProdBackward1": frozenset({"mask", "counts"}),
    "ProdBackward0": frozenset(),
    "CumprodBackward0": frozenset({"weighted"}),
}
"""What of it is there when a plain run knows that a factor is zero, and stays while it goes the long way."""

OF_CPU: dict[str, Formula] = dict.fromkeys(("MaxBackward1", "MinBackward1", "MedianBackward0"), _shared_out)
"""The same, where CUDA takes the long way."""


class Formulas:
    """Follows which autograd node runs, and puts the short way in the place of the long one.

    Args:
        ledger: Takes the allocations.
        assume: Takes what is assumed.
        kind: Of the device.
    """

    def __init__(self, ledger: Ledger, assume: Callable[[str], None], kind: str) -> None:
        self._ledger = ledger
        self._formulas = OF_PRODUCTS | (OF_CPU if kind == "cpu" else {})
        self._assume = assume
        self._running: tuple[str, int] | None = None
        self._asked: StorageId | None = None
        """What a plain run that finds a zero holds beside the long way."""
        self._first = 0
        """Number of allocations before the node's own."""
        self._is_differentiated = False
        """Does the node's long way stay?"""
        self._first_number = 0
        """What autograd numbers the first node of that way by."""
        self._long_ways: list[range] = []
        """Numbers of the nodes that such ways have left behind, whose gradients belong to them."""

    def follow(self, node: Any) -> None:
        """Say on behalf of which autograd node the next op runs; None: of none."""
        name = "" if node is None else node.name()
        number = 0 if node is None else node._sequence_nr()
        is_long = any(number in numbers for numbers in self._long_ways)
        running = (name, number) if is_long or (name in self._formulas and not _is_in_a_hook()) else None
        if running == self._running:
            return
        if self._running is not None:
            self._leave()
        self._running = running
        if running is not None:
            self._is_differentiated = is_long or torch.is_grad_enabled()
            self._enter(name, node)

    def laid_out(self, result: Any) -> Any:
        """An op's result as the running node's short way lays it out: what it fills is row-major, whatever it reads."""
        if self._running is None or self._is_differentiated or self._running[0] not in OF_CPU:
            return result
        return result.contiguous() if isinstance(result, torch.Tensor) else result

    def _enter(self, name: str, node: Any) -> None:
        if self._is_differentiated:
            self._assume(DIFFERENTIATED)
            self._first_number = get_sequence_nr()
        else:
            self._play(self._formulas[name](node))
            if name in OF_PRODUCTS:
                self._assume(NO_ZEROS)
                asked = sum(nbytes for key, nbytes in self._formulas[name](node) if key in _ASKED_BY[name])
                self._asked = self._ledger.scratch(0, most=asked + _COUNT_BYTES)
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

    def _leave(self) -> None:
        """What was born for the node and has died since was the long way's own; if it stays, all of it is unsure.

        Where data decide which of the ways a plain run takes, the long one's is what the node takes at most.
        """
        if self._is_differentiated:
            self._long_ways.append(range(self._first_number, get_sequence_nr()))
        asked, self._asked = self._asked, None
        if asked is not None:
            self._ledger.release_scratch(asked)
        for entry in self._ledger.entries[self._first :]:
            if self._is_differentiated:
                entry.most = entry.nbytes
            elif not entry.holders:
                if asked is not None and entry.most is None:
                    entry.most = entry.nbytes
                entry.nbytes = Bytes(0)


def _is_in_a_hook() -> bool:
    """Is it what a saved tensor's hook does that runs now (a checkpoint's recomputing, a cast), within the node?

    What the node does itself comes to a dispatch mode straight from autograd's engine.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_back.f_code is not engine_run_backward.__code__:
        frame = frame.f_back
    return frame.f_back is not None and frame.f_code.co_name != "__torch_dispatch__"
