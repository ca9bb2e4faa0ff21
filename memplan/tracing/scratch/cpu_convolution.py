"""Scratch of convolutions on CPU, forward: oneDNN's reordered copies, the columns of PyTorch's own kernel.

oneDNN computes on layouts of its own choice. Where the user's tensors have another, ideep copies them
(``reorder_if_differ_in``, third_party/ideep/include/ideep/operators/conv.hpp) through PyTorch's allocator: source and
weights before the result, the result itself afterwards, in aten/src/ATen/native/mkldnn/Conv.cpp. Measured with torch
2.13.0 (oneDNN 3.12) on AVX-512 (AMD EPYC), one thread, over some 200 shapes, November 2026.
"""

import torch

from memplan.tracing.scratch import cpu_convolution_images as channels_last
from memplan.tracing.scratch import cpu_convolution_own as own
from memplan.tracing.scratch.cpu_convolution_shape import (
    AVX2_LANES,
    SCRATCH_ALIGNMENT,
    CpuConvolution,
    block,
    by_onednn,
    by_small_products,
    columns_at_most,
    columns_bytes,
    cut_to_cache,
    filters_bytes,
    image_bytes,
    padded_bias_bytes,
    parse,
    reduced_source_bytes,
    refused_by_avx2,
    strided_backward_bytes,
    too_wide_for_strides,
)
from memplan.tracing.scratch.cpu_shapes import lanes, nbytes
from memplan.tracing.scratch.layouts import format_copy_bytes
from memplan.tracing.scratch.rules import Call, Scratch, Script


def _forward_onednn(conv: CpuConvolution) -> Script | None:
    if conv.channels_last:
        return channels_last.forward(conv)
    if conv.transposed and conv.strided and by_small_products(conv):
        copy = image_bytes(conv, conv.outputs, conv.result_area, 1)
        before = {
            "scratchpad": strided_backward_bytes(conv) + _turned_around_bytes(conv),
            "source": image_bytes(conv, conv.inputs, conv.source_area, 1),
            "weight": filters_bytes(conv, 1, lanes()),
            "result": copy,
        }
        return around(before, {}, keeps=("result",), also={"dense": copy})
    width = block(conv)
    if width == 1 and conv.depthwise and not (conv.dilated or conv.transposed):
        # Small products on rows of channels, which are brought back to planes.
        copy = image_bytes(conv, conv.outputs, conv.result_area, 1)
        before = {
            "source": image_bytes(conv, conv.inputs, conv.source_area, 1),
            "weight": filters_bytes(conv, 1, lanes()),
            "result": copy,
        }
        return around(before, {}, keeps=("result",), also={"dense": copy})
    if width == 1 or (not conv.depthwise and refused_by_avx2(conv, to_source=False)):
        plain = image_bytes(conv, conv.outputs, conv.result_area, 1)
        # A transposed one computes beside the result what it then adds the bias to.
        beside = plain + SCRATCH_ALIGNMENT if conv.transposed and conv.bias else 0
        script = around({"columns": columns_bytes(conv) + beside, "result": plain}, {}, ("result",))
        if conv.transposed:
            return script
        lines = cut_to_cache(script.before)
        return Script(before=columns_at_most(lines) if too_wide_for_strides(conv) else lines)
    result = image_bytes(conv, conv.outputs, conv.result_area, width)
    extra = reduced_source_bytes(conv) + padded_bias_bytes(conv, width)
    if conv.transposed:
        extra = result + SCRATCH_ALIGNMENT if conv.bias else 0
    flat = conv.flat_source and not conv.transposed
    before = {
        "scratchpad": extra,
        "source": 0 if flat else image_bytes(conv, conv.inputs, conv.source_area, width),
        "weight": filters_bytes(conv, 1 if flat else width, width),
        "result": result,
    }
    return around(before, {}, keeps=("result",))


def _turned_around_bytes(conv: CpuConvolution) -> int:
    """What a transposed convolution books beside the gradient that it is computed as (on AVX2; measured)."""
    if lanes() != AVX2_LANES:
        return 0
    # Where strides do not divide the rows, it computes beside the result what it then adds the bias to.
    beside = image_bytes(conv, conv.outputs, conv.result_area, 1) + SCRATCH_ALIGNMENT
    return SCRATCH_ALIGNMENT + (beside if conv.bias and conv.ragged_row else 0)


def around(
    before: dict[str, int], after: dict[str, int], keeps: tuple[str, ...], also: dict[str, int] | None = None
) -> Script:
    """Allocate ``before``; free all but ``keeps``, allocate ``also`` to convert the result; then ``after``."""
    held = {key: size for key, size in before.items() if size}
    first = [Scratch("alloc", key, size) for key, size in held.items()]
    first += [Scratch("free", key) for key in reversed(held) if key not in keeps]
    first += [Scratch("alloc", key, size) for key, size in (also or {}).items() if size]
    return Script(before=tuple(first), after=tuple(Scratch("alloc", key, size) for key, size in after.items() if size))


def dense_first(script: Script | None, conv: CpuConvolution, *tensors: torch.Tensor) -> Script:
    """Tensors that lie otherwise than the convolution wants are copied before anything else.

    Convolution.cpp ``_convolution`` and ``convolution_backward``: ``contiguous(backend_memory_format)``.
    """
    script = script or Script()
    sizes = [format_copy_bytes(tensor, conv.layout) for tensor in tensors]
    copies = tuple(Scratch("alloc", f"contiguous {index}", size) for index, size in enumerate(sizes) if size)
    return Script(before=copies + script.before, after=script.after)


def forward(call: Call) -> Script | None:
    """``aten.convolution``."""
    source, weight = call.args[0], call.args[1]
    conv = parse(source, weight, call.out, call, offset=0, bias=call.args[2] is not None)
    if by_onednn(source, conv):
        script = dense_first(_forward_onednn(conv), conv, source, weight)
        return bounded(script, source, call.out) if _is_unmeasured(conv) else script
    conv = own.as_it_wants(conv)
    return dense_first(own.forward(conv, call.out), conv, source, weight)


def _is_unmeasured(conv: CpuConvolution) -> bool:
    """Strided transposed ones in one dimension, or groups of them, take a scratchpad that no formula was found for.

    Those of single channels were measured on AVX2 alone.
    """
    if conv.transposed and conv.depthwise and lanes() != AVX2_LANES:
        return True
    grouped = conv.groups > 1 and by_small_products(conv) and not conv.channels_last
    return conv.transposed and conv.strided and (len(conv.kernel) == 1 or grouped)


def bounded(script: Script, *tensors: torch.Tensor) -> Script:
    """A script with room for as much again as its operands: measured cases stayed below half of that."""
    most = 2 * sum(nbytes(tensor) for tensor in tensors)
    return Script(before=script.before, after=(*script.after, Scratch("alloc", "unsure", 0, most=most)))


RULES = {"aten.convolution.default": forward}
"""Op name → rule."""
