"""Scratch of the gradients of PyTorch's own convolutions on CPU: pass by pass, in the order of their kernels.

Follows the same files as ``cpu_convolution_own``, and Convolution.cpp ``convolution_backward``. Measured with torch
2.13.0, November 2026.
"""

from dataclasses import dataclass

import torch

from memplan.tracing.scratch.cpu_convolution_own import (
    entered,
    freed,
    group_source_bytes,
    held,
    is_dilated,
    is_transposed_volume,
    of_one_group,
    patches_bytes,
    result_bytes,
    source_bytes,
    takes_groups_apart,
)
from memplan.tracing.scratch.cpu_convolution_shape import CpuConvolution
from memplan.tracing.scratch.cpu_shapes import FLOAT_BYTES, HALF_TYPES, is_one_run
from memplan.tracing.scratch.layouts import format_copy_bytes, memory_format
from memplan.tracing.scratch.rules import Scratch, Script

_VOLUME = 3
"""Dimensions of a volume."""
_RESULTS, _JOINED = frozenset({"to source", "to weight", "to bias"}), frozenset({"joined"})
"""Keys of what the op returns, without groups and with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """The gradients of one convolution without groups that are taken apart."""

    conv: CpuConvolution
    wants_source: bool
    wants_weight: bool
    copy: int
    """Bytes of the arriving gradient brought to the kernel's layout; 0 if it lies so."""
    floats: int
    """Bytes of it as floats, whose sums are the gradient of the bias; 0 where it is summed as it is."""
    source_copy: int
    """Bytes of the source brought to the layout within the pass for the weights."""
    weight_copy: int
    """Bytes of the weights brought to it within the pass for the source."""

    @property
    def weight(self) -> int:
        """Bytes of the weights."""
        conv = self.conv
        return conv.outputs * (conv.inputs // conv.groups) * conv.taps * conv.itemsize

    @property
    def bias(self) -> int:
        """Bytes of the bias's gradient."""
        return self.conv.outputs * self.conv.itemsize if self.conv.bias else 0


def backward(
    conv: CpuConvolution,
    gradient: torch.Tensor,
    source: torch.Tensor,
    weight: torch.Tensor,
    *,
    wants_source: bool,
    wants_weight: bool,
) -> Script:
    """The gradients.

    Args:
        conv: The convolution, with a bias if its gradient is wanted.
        gradient: What arrives.
        source: What was convolved.
        weight: Filters.
        wants_source: Is the gradient of the source wanted?
        wants_weight: Is that of the weight?
    """
    if takes_groups_apart(conv):
        return entered(_of_groups(conv, gradient, wants_source=wants_source, wants_weight=wants_weight), _JOINED)
    by_itself = len(conv.kernel) == _VOLUME and not conv.transposed and not conv.dilated
    task = _Task(
        conv=conv,
        wants_source=wants_source,
        wants_weight=wants_weight,
        copy=format_copy_bytes(gradient, conv.layout),
        floats=0 if _is_summed_as_it_is(conv, gradient) else _as_floats(conv, gradient),
        source_copy=format_copy_bytes(source, conv.layout) if by_itself else 0,
        weight_copy=format_copy_bytes(weight, conv.layout) if by_itself else 0,
    )
    return entered(_lines(task), _RESULTS)


def _of_groups(
    conv: CpuConvolution, gradient: torch.Tensor, *, wants_source: bool, wants_weight: bool
) -> tuple[Scratch, ...]:
    """The last of the groups, with what the others left, and all of it joined."""
    one = of_one_group(conv)
    lies_alike = memory_format(gradient) is conv.layout or one.outputs == 1
    lies_inside = memory_format(gradient) is not torch.contiguous_format and not is_transposed_volume(conv)
    task = _Task(
        conv=one,
        wants_source=wants_source,
        wants_weight=wants_weight,
        copy=0 if lies_alike else result_bytes(one),
        floats=0 if lies_inside or _is_one_row(one) else _as_floats(conv, gradient) // conv.groups,
        source_copy=0,
        weight_copy=0,
    )
    parts = source_bytes(one) * wants_source + task.weight * wants_weight + task.bias
    is_cut_free = conv.batch == 1 and gradient.is_contiguous()
    cut = {"group's gradient": 0 if is_cut_free else result_bytes(one), "group's source": group_source_bytes(conv)}
    return (
        *held({"other groups": (conv.groups - 1) * parts} | cut),
        *_lines(task),
        *freed(*reversed(cut)),
        *held({"joined": conv.groups * parts}),
    )


def _as_floats(conv: CpuConvolution, gradient: torch.Tensor) -> int:
    return FLOAT_BYTES * gradient.numel() if gradient.dtype in HALF_TYPES and conv.bias else 0


def _is_summed_as_it_is(conv: CpuConvolution, gradient: torch.Tensor) -> bool:
    """Does what is summed for the bias lie in one run? The kernel of transposed volumes sums a dense copy."""
    if is_transposed_volume(conv):
        return _is_one_row(conv)
    return is_one_run(gradient, [0, *range(2, gradient.ndim)])


def _is_one_row(conv: CpuConvolution) -> bool:
    """Do the pixels of each channel lie in one run, image after image, in a dense result?"""
    return conv.batch == 1 or conv.outputs == 1


def _lines(task: _Task) -> tuple[Scratch, ...]:
    """What the kernel allocates and frees, its results among it."""
    source = {"to source": source_bytes(task.conv) if task.wants_source else 0}
    weight, bias = {"to weight": task.weight if task.wants_weight else 0}, {"to bias": task.bias}
    if is_dilated(task.conv):
        unrolled = patches_bytes(task.conv) if task.wants_source or task.wants_weight else 0
        columns = {"columns": unrolled, "sum of an image": task.bias}
        return (
            *held({"gradient": task.copy} | source | weight | bias | columns),
            *freed("sum of an image", "columns", "gradient"),
        )
    first = {"gradient": task.copy} | source | {"weight": task.weight_copy, "columns": _columns_to_source(task.conv)}
    sums = {"sums": FLOAT_BYTES * task.conv.outputs if task.floats else 0, "floats": task.floats}
    last = {"second gradient": task.copy, "source": task.source_copy, "second columns": _columns_to_weight(task.conv)}
    of_source = (*held(first), *freed("columns", "weight", "gradient")) if task.wants_source else ()
    last_freed = freed("second columns", "source", "second gradient")
    if is_transposed_volume(task.conv):
        summed = (*held(last | sums), *freed("floats", "sums"), *last_freed)
        return (*of_source, *held(weight | bias), *(summed if task.wants_weight or task.bias else ()))
    of_weight = (*held(last), *last_freed) if task.wants_weight else ()
    return (*of_source, *held(bias | sums), *freed("floats", "sums"), *held(weight), *of_weight)


def _columns_to_source(conv: CpuConvolution) -> int:
    if conv.transposed:
        return _columns_to_weight(conv)
    # ConvolutionMM3d.cpp slow_conv3d_backward_out_cpu_template makes them in any case; images need none.
    return conv.batch * patches_bytes(conv) if len(conv.kernel) == _VOLUME else 0


def _columns_to_weight(conv: CpuConvolution) -> int:
    if conv.taps * conv.groups == 1 and not (conv.padded or conv.strided or conv.dilated):
        return 0
    return (1 if conv.transposed else conv.batch) * patches_bytes(conv)
