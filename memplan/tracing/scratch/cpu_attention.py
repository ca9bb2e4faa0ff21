"""Scratch of PyTorch's own CPU kernels for norms, softmax and attention.

Each rule names the file under aten/src/ATen/native that it follows. Buffers per thread count
``torch.get_num_threads()``. Sizes are those of torch.profiler's memory events on torch 2.13.0, November 2026.
"""

import torch

from memplan.tracing.scratch.cpu_shapes import (
    FLOAT_BYTES,
    HALF_TYPES,
    allocations,
    argument,
    contiguous_copies,
    copy_bytes,
    enlarge,
    nbytes,
    product,
)
from memplan.tracing.scratch.layouts import format_copy_bytes, memory_format
from memplan.tracing.scratch.rules import Call, Scratch, Script, within

# ---------------------------------------------------------------------- norms


def layer_norm(call: Call) -> Script:
    """layer_norm.cpp layer_norm_cpu: arguments made contiguous; statistics in the type of a wider weight."""
    source, weight = call.args[0], call.args[2]
    if weight is not None and weight.element_size() > source.element_size():
        for statistics in call.out[1:]:
            enlarge(statistics, statistics.numel() * weight.element_size())
    return allocations(contiguous_copies(call, (0, 2, 3)))


def layer_norm_backward(call: Call) -> Script:
    """layer_norm_kernel.cpp LayerNormBackwardKernelImplInternal: a row of dgamma and of dbeta per thread, in float."""
    row = product(call.args[2]) * _accumulate_bytes(call.args[1])
    sums = 2 * torch.get_num_threads() * row if any(call.args[7][1:]) else 0
    return allocations(contiguous_copies(call, (0, 1, 5)), {"partial sums": sums})


def _accumulate_bytes(tensor: torch.Tensor) -> int:
    return FLOAT_BYTES if tensor.dtype in HALF_TYPES else tensor.element_size()


def group_norm(call: Call) -> Script:
    """group_norm.cpp native_group_norm: the input in its memory format; group_norm_kernel.cpp: channels-last's sums.

    GroupNormKernelImplChannelsLastInternal keeps a scale and a shift per sample and channel; from images of 1024 pixels
    on it does so per thread, and adds two sums per sample and group.
    """
    source, batch, channels, pixels, groups = (call.args[position] for position in (0, 3, 4, 5, 6))
    if memory_format(source) is torch.contiguous_format:
        return allocations(contiguous_copies(call, (0,)))
    item = _accumulate_bytes(source)
    if pixels < _LARGE_FEATURE_MAP:
        return within({"scales": batch * 2 * channels * item})
    scales = torch.get_num_threads() * batch * 2 * channels * item
    return within({"scales": scales, "sums": batch * 2 * groups * item})


_LARGE_FEATURE_MAP = 1024
"""group_norm_kernel.cpp ``feature_map_threshold``."""


def group_norm_backward(call: Call) -> Script:
    """group_norm_kernel.cpp GroupNormBackwardKernelImplInternal: ds and db, one number per sample and channel each.

    Releases after torch 2.13 bring gradient and input into the input's memory format inside the op (group_norm.cpp
    native_group_norm_backward); before, autograd did so by an op of its own, and here nothing is left to copy.
    """
    gradient, source, batch, channels = (call.args[position] for position in (0, 1, 5, 6))
    each = batch * channels * _accumulate_bytes(source)
    layout = memory_format(source)
    copies = {f"copy {index}": format_copy_bytes(tensor, layout) for index, tensor in enumerate((gradient, source))}
    return allocations(copies, {"ds": each, "db": each})


def batch_norm(call: Call) -> Script | None:
    """Normalization.cpp batch_norm_cpu_update_stats_template: a few vectors of channels."""
    if not call.args[5]:
        return None
    row = call.args[0].shape[1] * _accumulate_bytes(call.args[0])
    return within({"mean": row, "variance": row})


def updating_batch_norm(call: Call) -> Script:
    """The same where it always computes statistics (``_batch_norm_with_update``)."""
    row = call.args[0].shape[1] * _accumulate_bytes(call.args[0])
    return within({"mean": row, "variance": row})


def batch_norm_backward(call: Call) -> Script:
    """Normalization.cpp batch_norm_backward_cpu: where both lie alike, a second gradient while it computes.

    Otherwise the sums of the gradient, one for each channel (measured on torch 2.13.0, November 2026, with every mask).
    """
    gradient, source = call.args[:2]
    layout = memory_format(source)
    if source.is_contiguous(memory_format=layout) and gradient.is_contiguous(memory_format=layout):
        wanted = argument(call, 9, "output_mask")[0]
        return within({"gradient": nbytes(source) if wanted else 0})
    return within({"sums": source.shape[1] * source.element_size()})


# ---------------------------------------------------------------------- attention and softmax


def safe_softmax(call: Call) -> Script:
    """transformers/attention.cpp _safe_softmax: a softmax; masks of what is minus infinity, by element and by row."""
    scores = call.args[0]
    dim = scores.shape[call.args[1]] if scores.ndim else 1
    masks = within({"masked": scores.numel(), "masked rows": scores.numel() // max(dim, 1)})
    copies = softmax(call).after
    return Script(after=(*copies, *(Scratch("free", copy.key) for copy in copies), *masks.after))


def softmax(call: Call) -> Script:
    """SoftMax.cpp softmax_cpu_out, log_softmax_cpu_out: the input made contiguous."""
    return within(contiguous_copies(call, (0,)))


def softmax_backward(call: Call) -> Script:
    """SoftMax.cpp softmax_backward_cpu_out, log_softmax_backward_cpu_out: gradient and output made contiguous."""
    return within(contiguous_copies(call, (0, 1)))


def _query_rows(length: int) -> int:
    """FlashAttentionKernel.cpp flash_attention_kernel_impl: rows of queries that one task takes."""
    return 256 if length >= 768 else 64 if length >= 192 else 32


def _key_rows(length: int) -> int:
    return min(512, length)


def flash_attention(call: Call) -> Script:
    """FlashAttentionKernel.cpp cpu_flash_attention: scores, maxima, sums and a tile of results per thread, in float."""
    query, key = call.args[0], call.args[1]
    rows, columns, head = min(_query_rows(query.shape[2]), query.shape[2]), _key_rows(key.shape[2]), query.shape[3]
    each = _accumulate_bytes(query) * (rows * columns + 2 * rows + rows * head)
    reduced = query.element_size() * rows * columns if query.dtype in HALF_TYPES else 0
    threads = torch.get_num_threads()
    return within({"tiles": threads * each, "reduced tiles": threads * reduced})


def flash_attention_backward(call: Call) -> Script:
    """FlashAttentionKernel.cpp cpu_flash_attention_backward: scores and their gradients per thread."""
    query, key = call.args[1], call.args[2]
    rows, columns = min(_query_rows(query.shape[2]), query.shape[2]), _key_rows(key.shape[2])
    threads, each = torch.get_num_threads(), 2 * _accumulate_bytes(query) * rows * columns
    reduced = 2 * query.element_size() * rows * columns if query.dtype in HALF_TYPES else 0
    row_sums = rows * _accumulate_bytes(query)
    # The kernel walks batch, length, head, width; a gradient in another order is copied.
    gradient = copy_bytes(call.args[0].transpose(1, 2))
    return within(
        {
            "gradient": gradient,
            "tiles": threads * each,
            "row sums": threads * row_sums,
            "reduced tiles": threads * reduced,
        }
    )


def in_dense_order(call: Call) -> Script:
    """transformers/attention.cpp transform_bias_rescale_qkv_cpu, SoftMax.cpp masked_softmax_cpu: dense operands."""
    return allocations(contiguous_copies(call, (0, 1)))


RULES = {
    "aten._transform_bias_rescale_qkv.default": in_dense_order,
    "aten._masked_softmax.default": in_dense_order,
    "aten.native_layer_norm.default": layer_norm,
    "aten.native_layer_norm_backward.default": layer_norm_backward,
    "aten.native_group_norm.default": group_norm,
    "aten.native_group_norm_backward.default": group_norm_backward,
    "aten.native_batch_norm.default": batch_norm,
    "aten.native_batch_norm_backward.default": batch_norm_backward,
    "aten._native_batch_norm_legit.default": batch_norm,
    "aten._batch_norm_with_update.default": updating_batch_norm,
    "aten.batch_norm_backward.default": batch_norm_backward,
    "aten._softmax.default": softmax,
    "aten._log_softmax.default": softmax,
    "aten._softmax_backward_data.default": softmax_backward,
    "aten._log_softmax_backward_data.default": softmax_backward,
    "aten._safe_softmax.default": safe_softmax,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": flash_attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": flash_attention_backward,
}
"""Op name → rule."""
