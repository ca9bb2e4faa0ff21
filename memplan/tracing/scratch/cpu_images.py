"""Scratch of interpolation on CPU: tables of indices and weights, images brought to another memory format.

Follows aten/src/ATen/native/cpu/UpSampleKernel.cpp and UpSampleMoreKernel.cpp. Sizes are those of torch.profiler's
events on torch 2.13.0, November 2026.
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


def backward_of_near(call: Call) -> Script:
    """Nearest and linear pixels: what is neither row-major nor channels-last is copied; so is the result, at times."""
    gradient, out = call.args[0], call.out
    layout = memory_format(gradient)
    return within({"gradient": format_copy_bytes(gradient, layout), "result": format_copy_bytes(out, layout)})


def backward_of_rows(call: Call) -> Script:
    """Kernels that know row-major images only."""
    return within({"gradient": copy_bytes(call.args[0]), "result": copy_bytes(call.out)})


_NEAR = """
    upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d
"""
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
    **{f"aten.{name}_backward.default": backward_of_near for name in _NEAR.split()},
    **{f"aten.{name}_backward.default": backward_of_rows for name in _ROWS.split()},
}
"""Op name → rule."""
