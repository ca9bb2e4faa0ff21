"""Scratch of convolutions: copies into one memory format, cuDNN's work space as a range, the sum of the bias gradient.

Follows aten/src/ATen/native/Convolution.cpp (``_convolution``, ``convolution_backward``, ``ConvParams::use_cudnn``,
``use_cudnn_depthwise``, ``is_depthwise``), cudnn/ConvShared.cpp (``cudnn_convolution_forward``,
``cudnn_convolution_backward``) and ConvUtils.h (``cudnn_conv_suggest_memory_format``). Biases are added in place. Where
cuDNN is switched off PyTorch's own kernels run, whose columns of one image are left out.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from memplan.tracing.scratch.cuda_convolution_workspace import CudaConvolution, Purpose, likely_bytes, most_bytes
from memplan.tracing.scratch.cuda_reduction import SUM, reduction_scratch
from memplan.tracing.scratch.cuda_shapes import Layout, allocations, frees
from memplan.tracing.scratch.layouts import format_copy_bytes, memory_format
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script

if TYPE_CHECKING:
    from memplan.tracing.nested import Path

_MIRRORED: Mapping[Purpose, Purpose] = {"result": "source", "source": "result", "filters": "filters"}
"""What a transposed convolution's call computes for the plain one that it mirrors."""
_DEPTHWISE_CHANNELS = 32
"""use_cudnn_depthwise: fewer stay with PyTorch's own kernel."""
_CUDNN_TYPES = {torch.float16: (0, 0), torch.bfloat16: (8, 0), torch.float32: (0, 0), torch.float64: (0, 0)}
"""Type → least compute capability for which cuDNN convolves it."""


def forward(call: Call) -> Script | None:
    """``convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)``."""
    source, weight = call.args[0], call.args[1]
    layout = _format(source, weight)
    if not _by_cudnn(call, source, weight, call.args[3:9]):
        return Script(before=_copies({"input": source, "weight": weight}, torch.contiguous_format))
    work = _work_space(call, "result", source, weight, call.out, call.args[3:9])
    weights = _copies({"weight": weight}, layout)
    return Script(before=_copies({"input": source}, layout), after=(*weights, *work))


def backward(call: Call) -> Script | None:
    """``convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, …, groups, output_mask)``."""
    gradient, source, weight = call.args[:3]
    options, (wants_source, wants_weight, wants_bias) = call.args[4:10], call.args[10]
    bias = _bias_sum(call, gradient) if wants_bias else ()
    if not _by_cudnn(call, source, weight, options):
        copies = _copies({"gradient": gradient, "input": source}, torch.contiguous_format)
        return Script(before=copies, after=bias)
    layout = _format(source, weight)
    copies = _copies({"gradient": gradient, **({"input": source} if wants_weight else {})}, layout)
    held = (
        (*_copies({"weight": weight}, layout), *_work_space(call, "source", source, weight, gradient, options))
        if wants_source
        else None,
        _work_space(call, "filters", source, weight, gradient, options) if wants_weight else None,
        bias if wants_bias else None,
    )
    # Each gradient is allocated just before the call that computes it, and what one holds is freed before the next.
    between: dict[Path, tuple[Scratch, ...]] = {}
    work: tuple[Scratch, ...] = ()
    for place, lines in enumerate(held):
        if lines is not None:
            between[place,] = (*work, *frees(*(line.key for line in reversed(work))))
            work = lines
    return Script(before=copies, between=between, after=work)


def _work_space(  # noqa: PLR0917 (an op's operands)
    call: Call, purpose: Purpose, source: torch.Tensor, weight: torch.Tensor, result: torch.Tensor, options: Any
) -> tuple[Scratch, ...]:
    stride, _, dilation, transposed, _, groups = options
    if not result.numel() or not source.numel():
        return ()
    if transposed:
        source, result = result, source
        purpose = _MIRRORED[purpose]
    # One spatial dimension is convolved as two (``view1d_as_2d``).
    flat = (1,) if source.dim() == 3 else ()
    convolution = CudaConvolution(
        batch=source.shape[0],
        inputs=source.shape[1],
        outputs=result.shape[1],
        groups=groups,
        source=(*flat, *source.shape[2:]),
        result=(*flat, *result.shape[2:]),
        kernel=(*flat, *weight.shape[2:]),
        dense=all(step == 1 for step in (*stride, *dilation)),
        channels_last=_format(source, weight) is not torch.contiguous_format,
        dtype=source.dtype,
        purpose=purpose,
        tf32=_allows_tf32(),
    )
    likely, most = likely_bytes(convolution, call.device), most_bytes(convolution, call.device)
    return (Scratch("alloc", f"work space of the {purpose}", likely, max(likely, most), spare=True),)


def _allows_tf32() -> bool:
    """May cuDNN's convolutions round fp32 numbers? Newer torch refuses the older question after the newer setting."""
    setting = getattr(getattr(torch.backends.cudnn, "conv", None), "fp32_precision", None)
    return torch.backends.cudnn.allow_tf32 if setting is None else setting == "tf32"


def _bias_sum(call: Call, gradient: torch.Tensor) -> tuple[Scratch, ...]:
    dims = [dim for dim in range(gradient.dim()) if dim != 1]
    return reduction_scratch(call.device, Layout.of(gradient), dims, gradient.dtype, SUM)


def _by_cudnn(call: Call, source: torch.Tensor, weight: torch.Tensor, options: Any) -> bool:
    least = _CUDNN_TYPES.get(source.dtype)
    if not torch.backends.cudnn.enabled or least is None or call.device.capability < least:
        return False
    stride, _, dilation, transposed, _, groups = options
    channels = source.shape[1]
    if transposed or source.dim() < 4 or not (groups == channels > 1 and weight.shape[0] % channels == 0):
        return True
    if _format(source, weight) is not torch.contiguous_format:
        return True
    # Which of these cuDNN is faster at depends on a table of sizes (check_cudnn_depthwise_workload_with_filter); no
    # plan for them takes work space worth counting either way.
    even = stride[0] == stride[-1] or source.shape[2] == 1
    small = source.dim() > 4 or channels < _DEPTHWISE_CHANNELS or any(step != 1 for step in dilation)
    return source.dtype is torch.float16 and even and not small


def _format(source: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """``cudnn_conv_suggest_memory_format``: channels-last if either operand is."""
    if source.dtype is torch.float64:
        return torch.contiguous_format
    ours = memory_format(source)
    return memory_format(weight) if ours is torch.contiguous_format else ours


def _copies(tensors: Mapping[str, torch.Tensor], layout: torch.memory_format) -> tuple[Scratch, ...]:
    return allocations((f"{name} copy", format_copy_bytes(tensor, layout)) for name, tensor in tensors.items())


CONVOLUTION_RULES: Mapping[str, Rule] = {
    "aten.convolution.default": forward,
    "aten.convolution_backward.default": backward,
}
"""Op name → rule."""
