"""Scratch of embeddings. In backward many indices are sorted and their gradients summed by segments.

Follows aten/src/ATen/native/cuda/Embedding.cu (``embedding_dense_backward_cuda``), EmbeddingBag.cu
(``_embedding_bag_dense_backward_cuda``) and EmbeddingBackwardKernel.cu as of 2026.
Older releases lack the fused branch, which only serves tables with few rows.
"""

from collections.abc import Mapping
from itertools import pairwise

import torch

from memplan.tracing.scratch.cuda_cub import radix_sort_pairs_bytes, run_states, tile_states
from memplan.tracing.scratch.cuda_shapes import (
    INDEX_BYTES,
    allocations,
    argument,
    ceil_div,
    copy_if_strided,
    frees,
    nbytes,
    opmath_bytes,
    round_up,
)
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script

# Embedding.cu: up to this many indices one kernel adds all gradients without scratch.
_DIRECT_INDICES = 3072
# EmbeddingBackwardKernel.cu: NROWS_PER_THREAD, MAX_ATOMIC_ACCUM_BLOCKS_PER_SM; SortingCommon.cuh: MAX_BLOCK_SIZE.
_ROWS_PER_THREAD = 10
_ATOMIC_BLOCKS_PER_SM = 4
_BLOCK = 1024
_WARP = 32
# ATen/native/EmbeddingBag.h EmbeddingBagMode::MAX: atomic additions, no sorting.
_MAX_MODE = 2


def lookup(call: Call) -> Script | None:
    """``embedding(weight, indices, …)``, Embedding.cpp: ``indices.reshape(-1)``, a copy where that is no view."""
    indices = argument(call, 1, "indices")
    if indices.ndim < _ROWS or _is_one_row(indices):
        return None
    return Script(before=allocations((("indices", nbytes(indices)),)))


_ROWS = 2
"""Dimensions from which on indices are laid in a row."""


def _is_one_row(tensor: torch.Tensor) -> bool:
    """Do its elements lie in memory at one distance, so that ``reshape(-1)`` is a view?"""
    lengths = [(size, stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1]
    return all(outer == inner * size for (_, outer), (size, inner) in pairwise(lengths))


def dense_backward(call: Call) -> Script | None:
    """``embedding_dense_backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq)``."""
    gradient, indices = argument(call, 0, "grad_output"), argument(call, 1, "indices")
    by_frequency = argument(call, 4, "scale_grad_by_freq", default=False)
    copies = (*copy_if_strided("indices", indices), *copy_if_strided("gradient", gradient))
    count = indices.numel()
    if count <= _DIRECT_INDICES and not by_frequency:
        return Script(before=copies) if copies else None
    before = (*copies, *_sorted_indices(call, indices))
    if by_frequency:
        before = (*before, Scratch("alloc", "frequency", nbytes(indices)))
    return Script(before=before, after=_segments(call, gradient, indices, argument(call, 2, "num_weights")))


def _bag_backward(rows_position: int) -> Rule:
    """``_embedding_bag_dense_backward``, or ``_embedding_bag_backward``, which runs it, with one argument more.

    Args:
        rows_position: Where ``num_weights`` stands; ``scale_grad_by_freq`` and ``mode`` follow.
    """

    def rule(call: Call) -> Script | None:
        gradient, indices = call.args[:2]
        rows, by_frequency, mode, sparse = call.args[rows_position : rows_position + 4]
        if sparse is True:
            return None  # Only ``_embedding_bag_backward`` says so; the gradient is then made of views and one gather.
        copies = copy_if_strided("gradient", gradient)
        if mode == _MAX_MODE or not indices.numel():
            return Script(before=copies) if copies else None
        before = (*copies, *copy_if_strided("indices", indices), *_sorted_indices(call, indices))
        if by_frequency:
            before = (*before, Scratch("alloc", "frequency", nbytes(indices)))
        return Script(before=before, after=_segments(call, gradient, indices, rows))

    return rule


def _sorted_indices(call: Call, indices: torch.Tensor) -> tuple[Scratch, ...]:
    size, item = nbytes(indices), indices.element_size()
    # All bits are sorted, whatever the largest index.
    temporary = radix_sort_pairs_bytes(
        indices.numel(), 8 * item, key_bytes=item, value_bytes=item, capability=call.device.capability
    )
    sizes = (("sorted", size), ("original", size), ("range", size), ("sort", temporary))
    return (*allocations(sizes), *frees("sort", "range"))


def _segments(call: Call, gradient: torch.Tensor, indices: torch.Tensor, rows: int) -> tuple[Scratch, ...]:
    count, width, item = indices.numel(), gradient.shape[-1], indices.element_size()
    segments = min(count, rows)
    partials = count // _ROWS_PER_THREAD + segments
    accumulator = width * opmath_bytes(gradient.dtype)
    tables = (
        *allocations((("offsets", count * item), ("segments", INDEX_BYTES), ("unique", count * item))),
        run_states("runs", count, item, call.device),
        *frees("runs", "unique"),
        *allocations((("partials", segments * item), ("partial_offsets", segments * item))),
        tile_states("scan", segments, item),
        *frees("scan"),
        *allocations((("partial_count", INDEX_BYTES), ("starts", partials * item))),
    )
    if not _fuses(call, segments, partials, width):
        return (*tables, Scratch("alloc", "sums", partials * accumulator))
    owners = Scratch("alloc", "owners", partials * item)
    widened = rows * accumulator if opmath_bytes(gradient.dtype) > gradient.element_size() else 0
    return (*tables, owners, *allocations((("widened", widened),)))


def _fuses(call: Call, segments: int, partials: int, width: int) -> bool:
    """Few segments leave most of the device idle: then partial sums are added atomically."""
    warped = round_up(width, _WARP)
    grid = ceil_div(segments * warped, min(warped, _BLOCK))
    return grid < call.device.sm_count * _ATOMIC_BLOCKS_PER_SM and partials > grid * 4


EMBEDDING_RULES: Mapping[str, Rule] = {
    "aten.embedding.default": lookup,
    "aten.embedding_dense_backward.default": dense_backward,
    "aten._embedding_bag_dense_backward.default": _bag_backward(5),
    "aten._embedding_bag_backward.default": _bag_backward(6),
}
"""Op name → rule."""
