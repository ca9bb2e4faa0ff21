"""Scratch of convolutions of channels-last images and volumes on CPU: they stay as they lie, only weights are copied.

oneDNN computes them with small matrix products (src/cpu/x64/jit_brgemm_conv*.cpp), which have a scratchpad of their
own; what is a product of unrolled patches also turns an image around (src/cpu/gemm_convolution_utils.cpp
``key_conv_gemm_imtr``). Measured with torch 2.13.0 (oneDNN 3.12), one thread, on AVX2, and of images on AVX-512 (AMD
EPYC), November 2026.
"""

from collections.abc import Mapping

from memplan.tracing.scratch.cpu_convolution_shape import (
    AVX2_LANES,
    SCRATCH_ALIGNMENT,
    CpuConvolution,
    filters_bytes,
    products_bytes,
    strided_backward_bytes,
)
from memplan.tracing.scratch.cpu_shapes import PAGE_BYTES, lanes
from memplan.tracing.scratch.rules import Scratch, Script

_FEWEST_STRIDED_PAGES = 9
"""Of the scratchpad of a strided gradient; larger ones are known between bounds (measured up to half as much again)."""


def forward(conv: CpuConvolution) -> Script | None:
    """The convolution itself, its result allocated."""
    packed = Scratch("alloc", "packed", filters_bytes(conv, 1, lanes()))
    if lanes() != AVX2_LANES:
        return None if conv.pointwise else Script(after=(packed,))
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
        packed = Scratch("alloc", "packed source", filters_bytes(conv, lanes(), 1))
        inside = (packed, *_products(conv, backward=not conv.transposed))
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


def _products(conv: CpuConvolution, *, backward: bool) -> tuple[Scratch, ...]:
    """The scratchpad of the small products.

    Args:
        conv: The convolution.
        backward: Is it computed as the gradient of the source of one?
    """
    if conv.depthwise:
        return ()
    if not (backward and conv.strided):
        # A gradient without strides is a convolution within the gradient; a transposed one holds what it turns around.
        nested = SCRATCH_ALIGNMENT if backward or conv.transposed else 0
        return (Scratch("alloc", "products", PAGE_BYTES + products_bytes(conv) + nested),)
    likely = max(strided_backward_bytes(conv), _FEWEST_STRIDED_PAGES * PAGE_BYTES)
    return (Scratch("alloc", "products", likely, most=2 * likely),)


def _turned_image_bytes(conv: CpuConvolution) -> int:
    """One image and group, turned around."""
    channels, area = (conv.outputs, conv.result_area) if conv.transposed else (conv.inputs, conv.source_area)
    return channels // conv.groups * area * conv.itemsize + SCRATCH_ALIGNMENT


def _held(sizes: Mapping[str, int]) -> tuple[Scratch, ...]:
    return tuple(Scratch("alloc", key, size) for key, size in sizes.items() if size)


def _freed(lines: tuple[Scratch, ...]) -> tuple[Scratch, ...]:
    return tuple(Scratch("free", line.key) for line in reversed(lines))
