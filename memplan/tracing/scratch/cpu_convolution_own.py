"""Scratch of PyTorch's own convolutions on CPU, which serve types and sizes that oneDNN does not.

Follows aten/src/ATen/native: ConvolutionMM2d.cpp, ConvolutionMM3d.cpp (columns of the whole batch),
NaiveConvolutionTranspose2d.cpp (the same for the result), NaiveDilatedConvolution.cpp (columns of one image), and
Convolution.cpp ``_convolution``, which runs groups one after the other and joins what they leave. Measured with torch
2.13.0, November 2026.
"""

from dataclasses import replace

from memplan.tracing.scratch.cpu_convolution_shape import CpuConvolution
from memplan.tracing.scratch.cpu_shapes import FLOAT_BYTES
from memplan.tracing.scratch.rules import Scratch, Script

_IMAGE = 2
"""Dimensions of an image."""


def as_it_wants(conv: CpuConvolution) -> CpuConvolution:
    """The convolution as these kernels want it: images may be channels-last, volumes may not (ConvUtils.h)."""
    return replace(conv, channels_last=conv.channels_last and len(conv.kernel) == _IMAGE)


def forward(conv: CpuConvolution) -> Script:
    """The convolution itself."""
    if conv.groups == 1:
        return Script(before=_held({"columns": columns_bytes(conv)}))
    one = _of_one_group(conv)
    source, result = _source_bytes(one), _result_bytes(one)
    held = {"results": (conv.groups - 1) * result, "source": source, "columns": columns_bytes(one), "last": result}
    return Script(before=(*_held(held), *_freed(held, "columns", "source")))


def backward(
    conv: CpuConvolution, *, half: bool, wants_source: bool, wants_weight: bool, gradient_copy: int = 0
) -> Script:
    """Its gradients.

    Args:
        conv: The convolution.
        half: Is it computed in a type of two bytes, whose sums are those of a copy in single precision?
        wants_source: Is the gradient of the source wanted?
        wants_weight: Is that of the weight?
        gradient_copy: Bytes of the gradient brought to the layout, which each of these two passes does for itself.
    """
    columns = _columns_of_weight(conv) if wants_weight else 0
    if conv.groups == 1:
        cast = _result_bytes(conv) * FLOAT_BYTES // conv.itemsize if half and conv.bias else 0
        transient = {"cast": cast} if conv.bias else {}
        first = {"gradient": gradient_copy if wants_source else 0}
        last = {"gradient": gradient_copy if wants_weight else 0, "columns": columns}
        return Script(
            before=(*_held(first), *_freed(first, "gradient")),
            after=(*_held(transient), *_freed(transient, "cast"), *_held(last)),
        )
    one = _of_one_group(conv)
    columns = _columns_of_weight(one) if wants_weight else 0
    source = _source_bytes(one) if wants_source else 0
    held = {
        "contiguous gradient": gradient_copy,
        "gradients": (conv.groups - 1) * source,
        "weights": conv.groups * one.outputs * (one.inputs * one.taps + 1) * one.itemsize if wants_weight else 0,
        "gradient": _result_bytes(one),
        "source": _source_bytes(one),
        "last": source,
        "columns": columns,
    }
    return Script(before=(*_held(held), *_freed(held, "columns", "source", "gradient")))


def columns_bytes(conv: CpuConvolution) -> int:
    """What the forward unrolls."""
    if conv.transposed:
        return conv.batch * conv.outputs * conv.taps * conv.source_area * conv.itemsize
    if conv.pointwise and not conv.strided:
        return 0
    images = 1 if conv.dilated else conv.batch
    return images * conv.inputs * conv.taps * conv.result_area * conv.itemsize


def _columns_of_weight(conv: CpuConvolution) -> int:
    if conv.transposed:
        return conv.outputs * conv.taps * conv.source_area * conv.itemsize
    if conv.pointwise and len(conv.kernel) == 3:
        # ConvolutionMM3d.cpp slow_conv3d_backward_out_cpu_template makes them in any case.
        return conv.batch * conv.inputs * conv.result_area * conv.itemsize
    return columns_bytes(conv)


def _of_one_group(conv: CpuConvolution) -> CpuConvolution:
    return replace(conv, inputs=conv.inputs // conv.groups, outputs=conv.outputs // conv.groups, groups=1)


def _source_bytes(conv: CpuConvolution) -> int:
    return conv.batch * conv.inputs * conv.source_area * conv.itemsize


def _result_bytes(conv: CpuConvolution) -> int:
    return conv.batch * conv.outputs * conv.result_area * conv.itemsize


def _held(sizes: dict[str, int]) -> tuple[Scratch, ...]:
    return tuple(Scratch("alloc", key, size) for key, size in sizes.items() if size)


def _freed(sizes: dict[str, int], *keys: str) -> tuple[Scratch, ...]:
    return tuple(Scratch("free", key) for key in keys if sizes.get(key))
