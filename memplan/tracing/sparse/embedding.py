"""Backward of ``EmbeddingBag(sparse=True)``: a gradient with an element for each index.

Follows aten/src/ATen/native/EmbeddingBag.cpp (``_embedding_bag_backward``, ``_embedding_bag_sparse_backward``),
which is the same on CPU and CUDA. The gradient of ``Embedding`` is made of views, in autograd's own code.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from memplan.tracing.sparse.parts import make_coo

if TYPE_CHECKING:
    from memplan.tracing.guesses import Guesses

_MEAN_MODE = 1
"""EmbeddingBag.h ``EmbeddingBagMode::MEAN``."""


def bag_backward(_: "Guesses", __: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """``_embedding_bag_backward``; a dense gradient is not made here."""
    gradient, indices, offsets, bags, sizes, _maxima, rows, _by_frequency, mode, is_sparse = args[:10]
    if not is_sparse:
        return NotImplemented
    del kwargs
    if bags.numel() == 0:
        # Which bag an index belongs to was not kept: a running sum over where bags begin.
        begins = indices.new_zeros(indices.shape[0] + 1)
        torch.ones_like(offsets)
        bags = begins.cumsum(0)
        del begins
    values = gradient.new_empty((indices.shape[0], gradient.shape[1]))
    if mode == _MEAN_MODE:
        lengths = sizes.to(gradient.dtype)
        shares = torch.empty_like(lengths), lengths.new_empty((indices.shape[0], 1))
        del lengths, shares
    del bags
    return make_coo(indices.reshape(1, -1), values, (rows, gradient.shape[1]))
