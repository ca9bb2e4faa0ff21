"""Scratch of PyTorch's own CPU kernels: reductions, lookups, images, operands of mixed types.

Each rule names the file under aten/src/ATen/native that it follows. Buffers per thread count
``torch.get_num_threads()``. Sizes are those of torch.profiler's memory events on
torch 2.13.0, one thread, November 2026.
"""

import torch

from memplan.tracing.scratch.common_kernels import (
    BOUNDARIES,
    ELEMENTWISE_LOSSES,
    PATCHES,
    REDUCTION_POSITIONS,
    distances,
    is_reduced,
    loss_shape,
    rolled,
)
from memplan.tracing.scratch.cpu_in_rows import IN_ROWS
from memplan.tracing.scratch.cpu_shapes import (
    FLOAT_BYTES,
    HALF_TYPES,
    INDEX_BYTES,
    allocations,
    argument,
    casts_in_place,
    contiguous_copies,
    copy_bytes,
    enlarge,
    is_one_run,
    nbytes,
    product,
)
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script, within

# ---------------------------------------------------------------------- reductions


def mean(call: Call) -> Script | None:
    """ReduceOps.cpp mean_out: a half-type mean is a float sum, of a float copy; other types as ``total``."""
    if call.out.dtype not in HALF_TYPES:
        return total(call)
    return allocations(
        {"float copy": call.args[0].numel() * FLOAT_BYTES, "float result": call.out.numel() * FLOAT_BYTES}
    )


def total(call: Call) -> Script | None:
    """ReduceOpsUtils.h make_reduction: on CPU whatever has another type than the result is copied to it."""
    source = call.args[0]
    if source.dtype is not call.out.dtype:
        return within({"cast": source.numel() * call.out.element_size()})
    if source.dtype in HALF_TYPES and not is_one_run(source, argument(call, 1, "dim")):
        return within({"sums": call.out.numel() * FLOAT_BYTES, "floats": source.numel() * FLOAT_BYTES})
    return None


def logsumexp(call: Call) -> Script:
    """ReduceOps.cpp logsumexp_out_impl: the maxima, and the exponentials of what is left."""
    return allocations({"maxima": nbytes(call.out), "exponentials": nbytes(call.args[0])})


def absolute(call: Call) -> Script | None:
    """UnaryOps.cpp unary_op_impl_with_complex_to_float_out: magnitudes are computed as complex numbers."""
    return within({"complex": nbytes(call.args[0])}) if call.args[0].is_complex() else None


def sort(call: Call) -> Script | None:
    """cpu/SortingKernel.cpp sort_stable_kernel: one row of indices."""
    source = call.args[0]
    dim = argument(call, 1, "dim", -1)
    return within({"row": source.shape[dim] * INDEX_BYTES}) if source.ndim else None


# ---------------------------------------------------------------------- lookups


def index_put(call: Call) -> Script | None:
    """IndexingUtils.h expandTensors: a mask becomes one vector of indices per dimension."""
    masks = [index for index in call.args[1] if index is not None and index.dtype in (torch.bool, torch.uint8)]
    values = call.args[2]
    selected = values.shape[0] if values.ndim else 1
    return within({f"mask {place}": mask.ndim * selected * INDEX_BYTES for place, mask in enumerate(masks)})


_MEAN_OF_BAG, _MAX_OF_BAG = 1, 2
"""EmbeddingBag.h EmbeddingBagMode."""


def embedding(call: Call) -> Script:
    """Embedding.cpp embedding_symint: indices made contiguous."""
    return allocations(contiguous_copies(call, (1,)))


def embedding_backward(call: Call) -> Script:
    """Embedding.cpp embedding_dense_backward_cpu: indices and gradient made contiguous."""
    return allocations({}, {"indices": copy_bytes(call.args[1]), "gradient": copy_bytes(call.args[0])})


def embedding_bag(call: Call) -> Script | None:
    """EmbeddingBag.cpp _embedding_bag_cpu_impl: the bag of each index, made twice unless bags are summed."""
    indices, bags = call.args[1], call.args[2].numel()
    if argument(call, 4, "mode", 0) != _MEAN_OF_BAG:
        return None
    # The second copy is gone before the last two results (one number per bag each) are made.
    return within({"offset to bag": max(0, (indices.numel() + 1 - 2 * bags) * indices.element_size())})


def embedding_bag_backward(call: Call) -> Script:
    """EmbeddingBag.cpp _embedding_bag_dense_backward_cpu: offsets of bags; indices sorted with origin, or maxima."""
    gradient, indices = call.args[0], call.args[1]
    each = indices.numel() * indices.element_size()
    missing = each + indices.element_size() if call.args[3].numel() == 0 else 0
    weights = argument(call, 10, "per_sample_weights")
    before = {"offset to bag": missing, "gradient": copy_bytes(gradient)}
    if call.args[8] != _MAX_OF_BAG:
        weighted = {} if weights is None else {"weights": nbytes(weights)}
        return allocations(before, {"sorted": each, "origin": each, "counts": each, **weighted})
    # Of bags that hold anything (all, as far as is known), gathered; then scattered column by column.
    maxima, column = call.args[5], gradient.shape[0] * INDEX_BYTES
    return allocations(before, {"maxima": nbytes(maxima), "gradients": nbytes(gradient), "column": column})


def dropout(call: Call) -> Script | None:
    """Dropout.cpp native_dropout_cpu, which nested tensors use: the mask of booleans times a number is a product."""
    result, mask = call.out
    return within({"mask as numbers": mask.numel() * result.element_size()})


_MEAN = 1
"""ATen/core/Reduction.h ``Reduction::Mean``."""


def _averaged(position: int, rule: Rule) -> Rule:
    def averaged(call: Call) -> Script | None:
        """A loss whose mean, of half types, is one of floats."""
        script = rule(call)
        if call.out.dtype not in HALF_TYPES or argument(call, position, "reduction", _MEAN) != _MEAN:
            return script
        floats = Scratch("alloc", "floats", product(loss_shape(call)) * FLOAT_BYTES)
        script = script or Script()
        return Script(before=script.before, after=(*script.after, floats))

    return averaged


def soft_margin(call: Call) -> Script:
    """Loss.cpp soft_margin_loss_out: the result is written over, by a target that may have another type."""
    size = product(loss_shape(call))
    if is_reduced(call):
        enlarge(call.out, size * call.out.element_size())
    return Script(after=casts_in_place(call.args[0].dtype, call.args[1].dtype, size))


def loss_backward(call: Call) -> Script:
    """PointwiseOpsKernel.cpp: zeros like the prediction, into which target and gradient are written."""
    return Script(after=casts_in_place(call.args[1].dtype, call.args[2].dtype, call.out.numel()))


_LOSSES = {
    **ELEMENTWISE_LOSSES,
    "aten.soft_margin_loss.default": soft_margin,
}

RULES = {
    **{name: _averaged(REDUCTION_POSITIONS[name], rule) for name, rule in _LOSSES.items()},
    **PATCHES,
    **BOUNDARIES,
    "aten.mse_loss_backward.default": loss_backward,
    "aten.smooth_l1_loss_backward.default": loss_backward,
    **IN_ROWS,
    "aten._euclidean_dist.default": distances,
    "aten.mean.default": mean,
    "aten.mean.dim": mean,
    "aten.sum.default": total,
    "aten.sum.dim_IntList": total,
    "aten.logsumexp.default": logsumexp,
    "aten.abs.default": absolute,
    "aten.sort.default": sort,
    "aten.sort.stable": sort,
    "aten.roll.default": rolled,
    "aten.index_put.default": index_put,
    "aten.index_put_.default": index_put,
    "aten.native_dropout.default": dropout,
    "aten.embedding.default": embedding,
    "aten.embedding_dense_backward.default": embedding_backward,
    "aten._embedding_bag.default": embedding_bag,
    "aten._embedding_bag_forward_only.default": embedding_bag,
    "aten._embedding_bag_backward.default": embedding_bag_backward,
}
"""Op name → rule."""
