"""Scratch of normalizations and softmax: copies of strided inputs, partial sums of weight gradients.

Follows aten/src/ATen/native/cuda/layer_norm_kernel.cu (rms_norm too), group_norm_kernel.cu and SoftMax.cu of 2026.
"""

from collections.abc import Mapping
from typing import Literal

import torch

from memplan.tracing.scratch.cuda_reduction import SUM, reduction_scratch
from memplan.tracing.scratch.cuda_shapes import (
    HALF_TYPES,
    Layout,
    allocations,
    argument,
    ceil_div,
    copy_if_strided,
    frees,
    nbytes,
    opmath_bytes,
    product,
)
from memplan.tracing.scratch.layouts import format_copy_bytes, memory_format
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script, within

# layer_norm_kernel.cu LaunchGammaBetaBackwardCUDAKernel: when it splits the rows, and into how many blocks.
_SPLIT_ABOVE_ROWS = 64 * 1024
_BLOCK_WIDTH = _ROWS_PER_BLOCK = 32
_MOST_BLOCKS = 64 * 1024 // 2


def _script(before: tuple[Scratch, ...], after: tuple[Scratch, ...]) -> Script | None:
    return Script(before=before, after=after) if before or after else None


def layer_norm(call: Call) -> Script | None:
    """Forward: a strided input is copied."""
    return _script(copy_if_strided("input", argument(call, 0, "input")), ())


def layer_norm_backward(call: Call) -> Script | None:
    """``native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, mask)``."""
    mask = argument(call, 7, "output_mask")
    wanted: tuple[Literal["weight", "bias"], ...] = ("weight", "bias")
    return _affine_backward(call, [name for name, wants in zip(wanted, mask[1:], strict=True) if wants])


def rms_norm_backward(call: Call) -> Script | None:
    """``_fused_rms_norm_backward(grad_out, input, normalized_shape, rstd, weight, mask)``."""
    return _affine_backward(call, ["weight"] if argument(call, 5, "output_mask")[1] else [])


def _affine_backward(call: Call, wanted: list[Literal["weight", "bias"]]) -> Script | None:
    gradient, source = argument(call, 0, "grad_out"), argument(call, 1, "input")
    columns = product(argument(call, 2, "normalized_shape"))
    rows = source.numel() // max(1, columns)
    after = copy_if_strided("gradient", gradient)
    if rows > _SPLIT_ABOVE_ROWS and columns // _BLOCK_WIDTH < call.device.sm_count // 2:
        blocks = min(_MOST_BLOCKS // ceil_div(columns, _BLOCK_WIDTH), ceil_div(rows, _ROWS_PER_BLOCK))
        after = (*after, *_partials(call, wanted, Layout((blocks, columns), (columns, 1), source.dtype)))
    return _script(copy_if_strided("input", source), after)


def _partials(call: Call, wanted: list[Literal["weight", "bias"]], block: Layout) -> tuple[Scratch, ...]:
    size = block.nbytes
    script = [Scratch("alloc", f"{name} blocks", size) for name in wanted]
    for name in wanted:
        # The sum is a new tensor that takes the place of the gradient allocated first, which then goes.
        script += [Scratch("alloc", name, block.shape[1] * block.dtype.itemsize)]
        script += reduction_scratch(call.device, block, {0}, block.dtype, SUM)
        script += frees(name)
    return tuple(script)


def group_norm(call: Call) -> Script | None:
    """``native_group_norm(input, weight, bias, N, C, HxW, group, eps)``: statistics and scales in float."""
    source, batch, channels, pixels, groups = (call.args[i] for i in (0, 3, 4, 5, 6))
    item = opmath_bytes(source.dtype)
    statistics = batch * groups * item if source.dtype in HALF_TYPES else 0
    plain = call.args[1] is None and call.args[2] is None
    scales = 0 if not _channels_last(source) and (pixels == 1 or plain) else batch * channels * item
    sizes = (("mean", statistics), ("rstd", statistics), ("scale", scales), ("shift", scales))
    return _script(_format_copies(memory_format(source), source), allocations(sizes))


def group_norm_backward(call: Call) -> Script | None:
    """``native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, mask)``."""
    source, weight, batch, channels, pixels, groups = (call.args[i] for i in (1, 4, 5, 6, 7, 8))
    last, item = _channels_last(source), opmath_bytes(source.dtype)
    sums = 0 if pixels == 1 and not last else batch * channels * item
    after = allocations((("gradient x input", sums), ("gradient", sums)))
    if call.args[9][0]:
        scale = batch * channels * item if sums and weight is not None and not last else 0
        factor = batch * groups * item
        after += (*allocations((("c2", factor), ("c3", factor), ("c1", scale))), *frees("c3", "c2"))
        after += frees("c1") if scale else ()
    return _script(_format_copies(memory_format(source), call.args[0], source), after)


def _channels_last(tensor: torch.Tensor) -> bool:
    return memory_format(tensor) is not torch.contiguous_format


def _format_copies(layout: torch.memory_format, *tensors: torch.Tensor) -> tuple[Scratch, ...]:
    """Releases after torch 2.13 bring operands into one memory format inside the op (group_norm.cpp)."""
    return allocations((f"copy {index}", format_copy_bytes(tensor, layout)) for index, tensor in enumerate(tensors))


def softmax(call: Call) -> Script | None:
    """``host_softmax``: a strided input is copied."""
    return _script((), copy_if_strided("input", call.args[0]))


def safe_softmax(call: Call) -> Script | None:
    """``_safe_softmax`` (transformers/attention.cpp): what is minus infinity, by element and by row, and a zero."""
    scores = call.args[0]
    row = scores.shape[call.args[1]] if scores.dim() else 1
    return within({"masked": scores.numel(), "rows": scores.numel() // max(row, 1), "zero": scores.element_size()})


def log_softmax_backward(call: Call) -> Script | None:
    """``host_softmax_backward``: strided gradients and outputs are copied."""
    return _script((), (*copy_if_strided("gradient", call.args[0]), *copy_if_strided("output", call.args[1])))


def softmax_backward(call: Call) -> Script | None:
    """``softmax_backward_cuda_out`` first multiplies gradient and output: one more tensor of the scores' size."""
    gradient, output = call.args[0], call.args[1]
    product_ = Scratch("alloc", "product", nbytes(gradient))
    copied = () if gradient.is_contiguous() else (Scratch("alloc", "gradient", nbytes(gradient)),)
    return _script((), (product_, *copied, *copy_if_strided("output", output)))


NORM_RULES: Mapping[str, Rule] = {
    "aten.native_layer_norm.default": layer_norm,
    "aten.native_layer_norm_backward.default": layer_norm_backward,
    "aten._fused_rms_norm.default": layer_norm,
    "aten._fused_rms_norm_backward.default": rms_norm_backward,
    "aten.native_group_norm.default": group_norm,
    "aten.native_group_norm_backward.default": group_norm_backward,
    "aten._softmax.default": softmax,
    "aten._safe_softmax.default": safe_softmax,
    "aten._log_softmax.default": softmax,
    "aten._softmax_backward_data.default": softmax_backward,
    "aten._log_softmax_backward_data.default": log_softmax_backward,
}
"""Op name → rule."""
