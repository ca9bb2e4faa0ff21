"""Scratch of interpolation, pooling and padding on CPU: tables of indices, images brought to another memory format.

Follows UpSampleKernel.cpp, UpSampleMoreKernel.cpp, MaxPoolKernel.cpp, AvgPoolKernel.cpp, AdaptiveAvgPoolKernel.cpp,
AdaptiveMaxPoolKernel.cpp, PaddingKernel.cpp and PixelShuffleKernel.cpp under aten/src/ATen/native/cpu. Sizes are those
of torch.profiler's events on torch 2.13.0, November 2026.
"""

import torch

from memplan.tracing.scratch.cpu_shapes import INDEX_BYTES, copy_bytes, nbytes, product
from memplan.tracing.scratch.layouts import format_copy_bytes, memory_format
from memplan.tracing.scratch.rules import Call, Rule, Script, within

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


def _tables(taps: int) -> Rule:
    def rule(call: Call) -> Script:
        """cpu/UpSampleKernel.cpp: for each side and tap, indices and weights of the result's pixels."""
        out = call.out
        return within({"indices and weights": taps * sum(out.shape[2:]) * (INDEX_BYTES + out.element_size())})

    return rule


def _smoothed(support: int) -> Rule:
    def rule(call: Call) -> Script:
        """cpu/UpSampleKernel.cpp separable_upsample_generic_Nd_kernel_impl: first columns, then rows, with tables."""
        source, out = call.args[0], call.out
        rows, columns = source.shape[2:]
        between = product(out.shape[:2]) * rows * out.shape[3] * out.element_size()
        tables = [
            after * (4 * INDEX_BYTES + (2 * -(-max(before, after) * support // after) + 1) * out.element_size())
            for before, after in ((columns, out.shape[3]), (rows, out.shape[2]))
        ]
        return within({"columns": between, "tables": max(tables)})

    return rule


def _in_some_format(call: Call) -> Script:
    """A source that is neither row-major nor channels-last is copied."""
    source = call.args[0]
    return within({"source": format_copy_bytes(source, memory_format(source))})


def _of_rows(call: Call) -> Script:
    """A kernel that knows row-major images only."""
    return within({"source": copy_bytes(call.args[0])})


def backward_of_near(call: Call) -> Script:
    """What is neither row-major nor channels-last is copied; so is a result that lies otherwise than its gradient."""
    gradient, out = call.args[0], call.out
    layout = memory_format(gradient)
    return within({"gradient": format_copy_bytes(gradient, layout), "result": format_copy_bytes(out, layout)})


def _backward_of_most(call: Call) -> Script:
    """Gradients of the largest pixels: their indices, too, have to lie as the gradient does."""
    gradient, indices = call.args[0], call.args[-1]
    layout = memory_format(gradient)
    sizes = {"gradient": gradient, "indices": indices, "result": call.out}
    return within({key: format_copy_bytes(tensor, layout) for key, tensor in sizes.items()})


def _backward_of_most_adaptive(call: Call) -> Script:
    """The same, where the source says how all lie."""
    gradient, source, indices = call.args
    layout = memory_format(source)
    return within({"gradient": format_copy_bytes(gradient, layout), "indices": format_copy_bytes(indices, layout)})


def backward_of_rows(call: Call) -> Script:
    """Kernels that know row-major images only."""
    return within({"gradient": copy_bytes(call.args[0]), "result": copy_bytes(call.out)})


_NEAR = """
    upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d
"""
_LIKE_NEAR = """
    avg_pool2d _adaptive_avg_pool2d reflection_pad2d reflection_pad3d replication_pad2d replication_pad3d
"""
_OF_IMAGES = """
    max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d avg_pool2d _adaptive_avg_pool2d reflection_pad2d
    reflection_pad3d replication_pad2d replication_pad3d pixel_shuffle pixel_unshuffle
"""
_GRADIENTS_OF_VOLUMES = "adaptive_max_pool3d avg_pool3d _adaptive_avg_pool3d"
_ROWS = "upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa"

RULES: dict[str, Rule] = {
    "aten.upsample_nearest2d.default": _upsample(1),
    "aten._upsample_nearest_exact2d.default": _upsample(1),
    "aten.upsample_bilinear2d.default": _upsample(2),
    "aten.upsample_nearest1d.default": _tables(1),
    "aten._upsample_nearest_exact1d.default": _tables(1),
    "aten.upsample_linear1d.default": _tables(2),
    "aten.upsample_bicubic2d.default": _tables(4),
    "aten.upsample_nearest3d.default": _tables(1),
    "aten._upsample_nearest_exact3d.default": _tables(1),
    "aten.upsample_trilinear3d.default": _tables(2),
    "aten._upsample_bilinear2d_aa.default": _smoothed(1),
    "aten._upsample_bicubic2d_aa.default": _smoothed(2),
    **{f"aten.{name}_backward.default": backward_of_near for name in (_NEAR + _LIKE_NEAR).split()},
    **{f"aten.{name}.default": _in_some_format for name in _OF_IMAGES.split()},
    "aten.avg_pool3d.default": _of_rows,
    **{f"aten.{name}_backward.default": _of_rows for name in _GRADIENTS_OF_VOLUMES.split()},
    "aten.max_pool2d_with_indices_backward.default": _backward_of_most,
    "aten.max_pool3d_with_indices_backward.default": _backward_of_most,
    "aten.adaptive_max_pool2d_backward.default": _backward_of_most_adaptive,
    **{f"aten.{name}_backward.default": backward_of_rows for name in _ROWS.split()},
}
"""Op name → rule."""
