"""Gradients that a plain run allocates before the loop that fills them, column by column.

Under a dispatch mode the columns are kept and joined when the loop ends (torch/csrc/autograd/FunctionsManual.cpp
``householder_product_backward``, where ``areAnyTensorSubclassLike``): the result would be born too late, and the
columns would live too long.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from memplan.tracing.ledger import Ledger
from memplan.tracing.nested import tensors_in
from memplan.units import Bytes, StorageId

_NODE = "LinalgHouseholderProductBackward0"
_PRODUCTS = frozenset({"aten.mm.default", "aten.bmm.default"})
_BEFORE_LOOP = 2
"""Products before the loop: of the result and its gradient, and of both with the first column."""
_JOINING = "aten.cat.default"


class EarlyResults:
    """Puts such a gradient where a plain run allocates it.

    Args:
        ledger: Takes the allocation.
        storage_of: Which allocation a tensor lies in.
    """

    def __init__(self, ledger: Ledger, storage_of: Callable[[torch.Tensor], StorageId | None]) -> None:
        self._ledger = ledger
        self._storage_of = storage_of
        self._running = -1
        """Sequence number of the node that runs."""
        self._products = 0
        self._first = 0
        """Number of allocations before the loop."""
        self._waiting: StorageId | None = None
        """The gradient, until its columns are joined."""
        self._joined: StorageId | None = None

    def overwritten(self, node: Any, name: str, args: tuple[Any, ...]) -> StorageId | None:
        """The allocation that the result of a node's op stands for; None: one of its own."""
        if self._joined is not None:
            # The joined columns hold it from here on.
            self._ledger.release_scratch(self._joined)
            self._joined = None
        if node is None or torch.is_grad_enabled() or node.name() != _NODE:
            return None
        if node._sequence_nr() != self._running:
            self._running, self._products, self._waiting = node._sequence_nr(), 0, None
        if name in _PRODUCTS:
            self._count(node)
        if name != _JOINING or self._waiting is None:
            return None
        self._joined, self._waiting = self._waiting, None
        self._forget(args)
        return self._joined

    def _count(self, node: Any) -> None:
        self._products += 1
        if self._products == _BEFORE_LOOP + 1:
            expected = node.next_functions[0][0]._input_metadata[node.next_functions[0][1]]
            self._first = len(self._ledger.entries)
            self._waiting = self._ledger.scratch(math.prod(expected.shape) * expected.dtype.itemsize)

    def _forget(self, columns: Any) -> None:
        """A plain run copies each column to its place and frees it at once."""
        for column in tensors_in(columns):
            identity = self._storage_of(column)
            if identity is not None and identity > self._first:
                self._ledger.entries[identity].nbytes = Bytes(0)
