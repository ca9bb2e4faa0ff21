"""Scratch of convolutions of channels-last images and volumes on CPU: they stay as they lie, only weights are copied.

oneDNN computes them with small matrix products (src/cpu/x64/jit_brgemm_conv*.cpp), which have a scratchpad of their
own; what is a product of unrolled patches also turns an image around (src/cpu/gemm_convolution_utils.cpp
``key_conv_gemm_imtr``). Measured with torch 2.13.0 (oneDNN 3.12), one thread, on AVX2, and of images on AVX-512 (AMD
EPYC), November 2026.
"""

from collections.abc import Mapping
from dataclasses import replace

from memplan.tracing.scratch.cpu_convolution_shape import (
    AVX2_LANES,
    SCRATCH_ALIGNMENT,
    CpuConvolution,
    by_small_products,
    columns_bytes,
    filters_bytes,
    products_bytes,
    strided_backward_bytes,
)
from memplan.tracing.scratch.cpu_shapes import PAGE_BYTES, lanes, round_up
from memplan.tracing.scratch.rules import Scratch, Script

_WIDEST_OF_FEW = 3
"""Filter width up to which AVX2's kernel computes strided gradients of few channels."""
_REGISTERS = 15
"""Registers that it has for results and what they are made of (``max_regs``)."""


def forward(conv: CpuConvolution) -> Script | None:
    """The convolution itself, its result allocated."""
    packed = Scratch("alloc", "packed", filters_bytes(conv, 1, lanes()))
    if lanes() != AVX2_LANES:
        return None if conv.pointwise else Script(after=(packed,))
    if conv.transposed and conv.strided:
        return Script(after=_transposed(conv))
    return Script(after=(*_products(conv, backward=conv.transposed), packed))


def backward(
    conv: CpuConvolution, weights: Mapping[str, int], *, source_bytes: int, weight_bytes: int, result_bytes: int
) -> Script:
    """Its gradients.

    Args:
        conv: The convolution.
        weights: What the pass for the weights holds while it computes, and its result under ``result``.
        source_bytes: Of the gradient of the source; 0 where none is wanted.
        weight_bytes: Of that of the weights; 0 likewise.
        result_bytes: Of the gradients of weight and bias, which the trace enters before the kernel makes them.
    """
    if lanes() != AVX2_LANES:
        held = {"packed": filters_bytes(conv, 1, lanes()), "copied out": weight_bytes}
        return Script(after=_held(held))
    before: tuple[Scratch, ...] = ()
    if source_bytes:
        inside = _to_source(conv)
        before = (Scratch("alloc", "gradient", source_bytes), *inside, *_freed(inside), Scratch("free", "gradient"))
    if not weight_bytes:
        return Script(before=before)
    scratchpad = {key: weights[key] for key in ("scratchpad", "columns") if weights.get(key)}
    if "columns" in scratchpad:
        scratchpad["turned"] = _turned_image_bytes(conv)
    inside = _held(scratchpad | {"packed": max(0, weights["result"] - result_bytes)})
    copies = {"result": min(weights["result"], result_bytes), "copied out": weight_bytes}
    computing = tuple(line for line in inside if line.key != "packed")
    return Script(before=before, after=(*inside, *_freed(computing), *_held(copies)))


def _to_source(conv: CpuConvolution) -> tuple[Scratch, ...]:
    """What the pass for the source holds beside the gradient that it makes."""
    if not conv.transposed and conv.strided:
        return _strided_gradient(conv)
    packed = Scratch("alloc", "packed source", filters_bytes(conv, lanes(), 1))
    return packed, *_products(conv)


def _strided_gradient(conv: CpuConvolution) -> tuple[Scratch, ...]:
    """The gradient of the source of a strided convolution: small products, AVX2's own kernel, or unrolled patches."""
    if conv.depthwise:
        return (Scratch("alloc", "packed source", filters_bytes(conv, lanes(), 1)),)
    if by_small_products(conv):
        packed = Scratch("alloc", "packed source", filters_bytes(conv, lanes(), 1))
        likely = strided_backward_bytes(conv)
        return packed, Scratch("alloc", "products", likely, most=2 * likely)
    if _strided_in_blocks(conv):
        return (Scratch("alloc", "packed source", filters_bytes(conv, lanes(), lanes())),)
    unrolled = columns_bytes(replace(conv, slices=1)) + _turned_image_bytes(conv)
    return Scratch("alloc", "packed source", filters_bytes(conv, 1, 1)), Scratch("alloc", "columns", unrolled)


def _transposed(conv: CpuConvolution) -> tuple[Scratch, ...]:
    """A strided transposed convolution: the gradient of the one that it turns around, and then its bias."""
    around = _strided_gradient(
        replace(
            conv,
            inputs=conv.outputs,
            outputs=conv.inputs,
            source_area=conv.result_area,
            result_area=conv.source_area,
            source_row=conv.result_row,
            result_row=conv.source_row,
            transposed=False,
        )
    )
    by_itself = conv.bias and (conv.ragged_row or not by_small_products(conv))
    beside = conv.batch * conv.outputs * conv.result_area * conv.itemsize + SCRATCH_ALIGNMENT if by_itself else 0
    nested = SCRATCH_ALIGNMENT if len(around) > 1 else 0
    return *_held({"beside": beside + nested}), *around


def _strided_in_blocks(conv: CpuConvolution) -> bool:
    """Does AVX2's own kernel compute the gradient of a strided convolution in groups, or is it a product of matrices?

    Source: src/cpu/x64/jit_avx2_conv_kernel_f32.cpp, init_conf of ``jit_avx2_conv_bwd_data_kernel_f32``.
    """
    inputs = conv.inputs // conv.groups
    is_wide = inputs < AVX2_LANES and conv.kernel[-1] > _WIDEST_OF_FEW and conv.row_step > 1
    if is_wide or conv.dilated or conv.stride_area != conv.row_step**2 or conv.overhang < 0:
        return False
    at_once = _pixels_at_once(conv, round_up(inputs, AVX2_LANES) // AVX2_LANES)
    left_over = conv.source_row % at_once if at_once else 0
    margin = (conv.result_row - 1) * conv.row_step + conv.overhang + 1 - conv.source_row
    beyond = max(0, int((conv.overhang + conv.margin - margin - left_over) / conv.row_step)) * conv.row_step
    cut = conv.source_row > at_once and (at_once % conv.row_step != 0 or margin + left_over < 0)
    return at_once > 0 and beyond <= at_once and not cut


def _pixels_at_once(conv: CpuConvolution, blocks: int) -> int:
    """How many pixels of a row that kernel computes at once: what uses most of the registers; 0 if nothing fits."""
    reach = max(0, conv.overhang // conv.row_step) * conv.row_step
    best = 0, 0
    for together in (each for each in range(1, 5) if blocks % each == 0):
        for tried in range(conv.row_step, conv.source_row + conv.row_step, conv.row_step):
            row = min(tried, conv.source_row)
            if tried * together + tried // conv.row_step > _REGISTERS or (reach > row != conv.source_row):
                continue
            best = max(best, (-(-row // conv.row_step) * together, row))
    return best[1]


def _products(conv: CpuConvolution, *, backward: bool = True) -> tuple[Scratch, ...]:
    """The scratchpad of the small products of what moves pixel by pixel.

    Args:
        conv: The convolution.
        backward: Is it computed as the gradient of the source of one?
    """
    if conv.depthwise:
        return ()
    # A gradient without strides is a convolution within the gradient; a transposed one holds what it turns around.
    nested = SCRATCH_ALIGNMENT if backward or conv.transposed else 0
    return (Scratch("alloc", "products", PAGE_BYTES + products_bytes(conv) + nested),)


def _turned_image_bytes(conv: CpuConvolution) -> int:
    """One image and group, turned around."""
    channels, area = (conv.outputs, conv.result_area) if conv.transposed else (conv.inputs, conv.source_area)
    return channels // conv.groups * area * conv.itemsize + SCRATCH_ALIGNMENT


def _held(sizes: Mapping[str, int]) -> tuple[Scratch, ...]:
    return tuple(Scratch("alloc", key, size) for key, size in sizes.items() if size)


def _freed(lines: tuple[Scratch, ...]) -> tuple[Scratch, ...]:
    return tuple(Scratch("free", line.key) for line in reversed(lines))
