"""Scratch of PyTorch's own CPU kernels: reductions, lookups, images, operands of mixed types.

Each rule names the file under aten/src/ATen/native that it follows. Buffers per thread count
``torch.get_num_threads()``. Sizes are those of torch.profiler's memory events on
torch 2.13.0, one thread, November 2026.
"""

from itertools import chain

import torch

from memplan.trace.scratch.common_kernels import ELEMENTWISE_LOSSES, PATCHES, cross_entropy_with_logits
from memplan.trace.scratch.cpu_shapes import (
    FLOAT_BYTES,
    HALF_TYPES,
    INDEX_BYTES,
    allocations,
    argument,
    contiguous_copies,
    copy_bytes,
    nbytes,
    results,
)
from memplan.trace.scratch.rules import Call, Rule, Script, within

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
    if source.dtype is call.out.dtype:
        return None
    return within({"cast": source.numel() * call.out.element_size()})


def logsumexp(call: Call) -> Script:
    """ReduceOps.cpp logsumexp_out_impl: the maxima, and the exponentials of what is left."""
    return allocations({"maxima": nbytes(call.out), "exponentials": nbytes(call.args[0])})


def absolute(call: Call) -> Script | None:
    """UnaryOps.cpp unary_op_impl_with_complex_to_float_out: magnitudes are computed as complex numbers."""
    return within({"complex": nbytes(call.args[0])}) if call.args[0].is_complex() else None


def angle(call: Call) -> Script | None:
    """UnaryOps.cpp angle: as for magnitudes, and the complex numbers come before the result."""
    return allocations({"complex": nbytes(call.args[0])}) if call.args[0].is_complex() else None


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


_MEAN_OF_BAG = 1
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
    """EmbeddingBag.cpp _embedding_bag_dense_backward_cpu: offsets of bags, and the indices sorted with their origin."""
    gradient, indices = call.args[0], call.args[1]
    each = indices.numel() * indices.element_size()
    missing = each if call.args[3].numel() == 0 else 0
    return allocations(
        {"offset to bag": missing, "gradient": copy_bytes(gradient)},
        {"sorted": each, "origin": each, "counts": each},
    )


# ---------------------------------------------------------------------- images


_SMALL_IMAGE = 128
"""cpu/UpSampleKernel.cpp _use_vectorized_kernel_cond_2d: height plus width up to which it is channels-last's."""


def _upsample(taps: int) -> Rule:
    def rule(call: Call) -> Script | None:
        """cpu/UpSampleKernel.cpp: small images are brought to channels-last and back; large ones get tables of indices.

        So do large channels-last images of up to three channels; those few KiB are left out.
        """
        source, out = call.args[0], call.out
        if source.is_contiguous(memory_format=torch.channels_last):
            return None
        side = out.shape[-1] + out.shape[-2]
        if side <= _SMALL_IMAGE:
            return within({"channels-last source": nbytes(source), "channels-last result": nbytes(out)})
        return within({"indices and weights": taps * side * (INDEX_BYTES + source.element_size())})

    return rule


# ---------------------------------------------------------------------- mixed types


def cast_operands(call: Call) -> Script | None:
    """aten/src/ATen/TensorIterator.cpp compute_types: on CPU, operands are copied to the common type first."""
    tensors = [value for value in chain(call.args, call.kwargs.values()) if isinstance(value, torch.Tensor)]
    common = results(call)[0].dtype
    if all(tensor.dtype is common for tensor in tensors):
        return None
    copies = {
        f"cast {index}": tensor.numel() * common.itemsize
        for index, tensor in enumerate(tensors)
        if tensor.dtype is not common
    }
    return allocations(copies)


_MIXING = (
    "add.Tensor",
    "sub.Tensor",
    "mul.Tensor",
    "div.Tensor",
    "add_.Tensor",
    "sub_.Tensor",
    "mul_.Tensor",
    "div_.Tensor",
)


def dropout(call: Call) -> Script | None:
    """Dropout.cpp native_dropout_cpu, which nested tensors use: the mask of booleans times a number is a product."""
    result, mask = call.out
    return within({"mask as numbers": mask.numel() * result.element_size()})


RULES = {
    **ELEMENTWISE_LOSSES,
    **PATCHES,
    "aten.binary_cross_entropy_with_logits.default": cross_entropy_with_logits(buffered=True),
    "aten.mean.default": mean,
    "aten.mean.dim": mean,
    "aten.sum.default": total,
    "aten.sum.dim_IntList": total,
    "aten.logsumexp.default": logsumexp,
    "aten.abs.default": absolute,
    "aten.angle.default": angle,
    "aten.sort.default": sort,
    "aten.sort.stable": sort,
    "aten.index_put.default": index_put,
    "aten.index_put_.default": index_put,
    "aten.native_dropout.default": dropout,
    "aten.embedding.default": embedding,
    "aten.embedding_dense_backward.default": embedding_backward,
    "aten._embedding_bag.default": embedding_bag,
    "aten._embedding_bag_forward_only.default": embedding_bag,
    "aten._embedding_bag_backward.default": embedding_bag_backward,
    "aten.upsample_nearest2d.default": _upsample(1),
    "aten._upsample_nearest_exact2d.default": _upsample(1),
    "aten.upsample_bilinear2d.default": _upsample(2),
    **{f"aten.{name}": cast_operands for name in _MIXING},
}
"""Op name → rule."""
