"""Scratch of PyTorch's own CPU kernels: norms, attention, losses, lookups, upsampling.

Each rule names the file under aten/src/ATen/native that it follows. Buffers per thread count
``torch.get_num_threads()``. Confirmed against torch.profiler's memory events on torch 2.13, one thread.
"""

from itertools import chain

import torch

from memplan.trace.scratch.cpu_shapes import argument, copy_bytes, enlarge, nbytes, product, results
from memplan.trace.scratch.rules import Call, Rule, Scratch, Script, within

_FLOAT = 4
_INDEX = 8
_REDUCED = (torch.bfloat16, torch.float16)


def _script(before: dict[str, int], after: dict[str, int] | None = None) -> Script:
    return Script(
        before=tuple(Scratch("alloc", key, size) for key, size in before.items() if size),
        after=tuple(Scratch("alloc", key, size) for key, size in (after or {}).items() if size),
    )


def _copies(call: Call, positions: tuple[int, ...]) -> dict[str, int]:
    """Contiguous copies of these arguments, made first."""
    return {f"contiguous {position}": copy_bytes(call.args[position]) for position in positions}


# ---------------------------------------------------------------------- norms


def layer_norm(call: Call) -> Script:
    """layer_norm.cpp layer_norm_cpu: arguments made contiguous; statistics in the type of a wider weight."""
    source, weight = call.args[0], call.args[2]
    if weight is not None and weight.element_size() > source.element_size():
        for statistics in call.out[1:]:
            enlarge(statistics, statistics.numel() * weight.element_size())
    return _script(_copies(call, (0, 2, 3)))


def layer_norm_backward(call: Call) -> Script:
    """layer_norm.cpp, layer_norm_kernel.cpp: a row of dgamma and of dbeta per thread, in float."""
    row = product(call.args[2]) * max(_FLOAT, _accumulate_bytes(call.args[1]))
    return _script(_copies(call, (0, 1, 5)), {"partial sums": 2 * torch.get_num_threads() * row})


def _accumulate_bytes(tensor: torch.Tensor) -> int:
    return _FLOAT if tensor.dtype in _REDUCED else tensor.element_size()


def group_norm(call: Call) -> Script:
    """group_norm.cpp native_group_norm: the input made contiguous."""
    return _script(_copies(call, (0,)))


def group_norm_backward(call: Call) -> Script:
    """group_norm_kernel.cpp GroupNormBackwardKernelImplInternal: ds and db, one number per sample and channel each."""
    batch, channels = call.args[5], call.args[6]
    each = batch * channels * _accumulate_bytes(call.args[1])
    return _script(_copies(call, (0, 1)), {"ds": each, "db": each})


def batch_norm(call: Call) -> Script | None:
    """Normalization.cpp batch_norm_cpu_update_stats_template: a few vectors of channels."""
    if not call.args[5]:
        return None
    row = call.args[0].shape[1] * _accumulate_bytes(call.args[0])
    return within({"mean": row, "variance": row})


def batch_norm_backward(call: Call) -> Script | None:
    """Normalization.cpp batch_norm_backward_cpu_template: one copy of the gradient while it computes (measured)."""
    if not call.args[7]:
        return None
    return _script({"gradient": nbytes(call.args[1])})


# ---------------------------------------------------------------------- attention and softmax


def safe_softmax(call: Call) -> Script:
    """transformers/attention.cpp _safe_softmax: masks of what is minus infinity, by element and by row."""
    scores = call.args[0]
    dim = scores.shape[call.args[1]] if scores.ndim else 1
    return within({"masked": scores.numel(), "masked rows": scores.numel() // max(dim, 1)})


def softmax(call: Call) -> Script:
    """SoftMax.cpp softmax_cpu_out, log_softmax_cpu_out: the input made contiguous."""
    return within(_copies(call, (0,)))


def softmax_backward(call: Call) -> Script:
    """SoftMax.cpp softmax_backward_cpu_out, log_softmax_backward_cpu_out: gradient and output made contiguous."""
    return within(_copies(call, (0, 1)))


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
    reduced = query.element_size() * rows * columns if query.dtype in _REDUCED else 0
    threads = torch.get_num_threads()
    return within({"tiles": threads * each, "reduced tiles": threads * reduced})


def flash_attention_backward(call: Call) -> Script:
    """FlashAttentionKernel.cpp cpu_flash_attention_backward: scores and their gradients per thread."""
    query, key = call.args[1], call.args[2]
    rows, columns = min(_query_rows(query.shape[2]), query.shape[2]), _key_rows(key.shape[2])
    threads, each = torch.get_num_threads(), 2 * _accumulate_bytes(query) * rows * columns
    reduced = 2 * query.element_size() * rows * columns if query.dtype in _REDUCED else 0
    row_sums = rows * _accumulate_bytes(query)
    return within({"tiles": threads * each, "row sums": threads * row_sums, "reduced tiles": threads * reduced})


# ---------------------------------------------------------------------- losses and reductions


def mse_loss(call: Call) -> Script | None:
    """Loss.cpp mse_loss_out: elements are computed into the result itself, which keeps their memory."""
    source = call.args[0]
    if argument(call, 2, "reduction", 1) == 0:
        return None
    elements = max(nbytes(source), nbytes(call.args[1]))
    enlarge(call.out, elements)
    # Reducing a tensor into itself makes TensorIterator copy it.
    return within({"copy": elements})


def binary_cross_entropy_with_logits(call: Call) -> Script:
    """Loss.cpp binary_cross_entropy_with_logits: log_sigmoid and the loss by element, and a passing third."""
    size = nbytes(call.args[0])
    return Script(
        before=(
            Scratch("alloc", "log sigmoid", size),
            Scratch("alloc", "factor", size),
            Scratch("free", "factor"),
            Scratch("alloc", "elements", size),
        )
    )


def mean(call: Call) -> Script | None:
    """ReduceOps.cpp mean on CPU: half types are summed in a float copy."""
    source = call.args[0]
    if source.dtype not in _REDUCED:
        return None
    return _script({"float copy": source.numel() * _FLOAT, "float result": call.out.numel() * _FLOAT})


# ---------------------------------------------------------------------- lookups


def embedding(call: Call) -> Script:
    """Embedding.cpp embedding_symint: indices made contiguous."""
    return _script(_copies(call, (1,)))


def embedding_backward(call: Call) -> Script:
    """Embedding.cpp embedding_dense_backward_cpu: indices and gradient made contiguous."""
    return _script({}, {"indices": copy_bytes(call.args[1]), "gradient": copy_bytes(call.args[0])})


def embedding_bag(call: Call) -> Script | None:
    """EmbeddingBag.cpp _embedding_bag_cpu_impl: the bag of each index, made twice unless bags are summed."""
    indices, bags = call.args[1], call.args[2].numel()
    if argument(call, 4, "mode", 0) == 0:
        return None
    # The second copy is gone before the last two results (one number per bag each) are made.
    return within({"offset to bag": max(0, (indices.numel() + 1 - 2 * bags) * indices.element_size())})


def embedding_bag_backward(call: Call) -> Script:
    """EmbeddingBag.cpp _embedding_bag_dense_backward_cpu: offsets of bags, and the indices sorted with their origin."""
    gradient, indices = call.args[0], call.args[1]
    each = indices.numel() * indices.element_size()
    missing = each if call.args[3].numel() == 0 else 0
    return _script(
        {"offset to bag": missing, "gradient": copy_bytes(gradient)},
        {"sorted": each, "origin": each, "counts": each},
    )


# ---------------------------------------------------------------------- images


_SMALL_IMAGE = 128
"""UpSampleKernel.cpp _use_vectorized_kernel_cond_2d: height plus width up to which it is channels-last's."""


def _upsample(taps: int) -> Rule:
    def rule(call: Call) -> Script | None:
        """UpSampleKernel.cpp: small images are brought to channels-last and back; large ones get tables of indices."""
        source, out = call.args[0], call.out
        if source.is_contiguous(memory_format=torch.channels_last):
            return None
        side = out.shape[-1] + out.shape[-2]
        if side <= _SMALL_IMAGE:
            return within({"channels-last source": nbytes(source), "channels-last result": nbytes(out)})
        return within({"indices and weights": taps * side * (_INDEX + source.element_size())})

    return rule


# ---------------------------------------------------------------------- mixed types


def cast_operands(call: Call) -> Script | None:
    """TensorIterator.cpp compute_types: on CPU, operands of another type than the common one are copied first."""
    tensors = [value for value in chain(call.args, call.kwargs.values()) if isinstance(value, torch.Tensor)]
    if len({tensor.dtype for tensor in tensors}) < 2:
        return None
    common = results(call)[0].dtype
    copies = {
        f"cast {index}": tensor.numel() * common.itemsize
        for index, tensor in enumerate(tensors)
        if tensor.dtype is not common
    }
    return _script(copies)


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

RULES = {
    "aten.native_layer_norm.default": layer_norm,
    "aten.native_layer_norm_backward.default": layer_norm_backward,
    "aten.native_group_norm.default": group_norm,
    "aten.native_group_norm_backward.default": group_norm_backward,
    "aten.native_batch_norm.default": batch_norm,
    "aten.native_batch_norm_backward.default": batch_norm_backward,
    "aten._safe_softmax.default": safe_softmax,
    "aten._softmax.default": softmax,
    "aten._log_softmax.default": softmax,
    "aten._softmax_backward_data.default": softmax_backward,
    "aten._log_softmax_backward_data.default": softmax_backward,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": flash_attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": flash_attention_backward,
    "aten.mse_loss.default": mse_loss,
    "aten.binary_cross_entropy_with_logits.default": binary_cross_entropy_with_logits,
    "aten.mean.default": mean,
    "aten.mean.dim": mean,
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
