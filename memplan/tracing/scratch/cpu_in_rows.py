"""Kernels on the CPU that make operands dense before they read them: a copy of each that lies otherwise.

Each rule names the file under aten/src/ATen/native that it follows. Found by running torch's samples of its operators
on operands that lie turned around (``benchmarks/cpu_ops.py --turned``, torch 2.13.0, AVX2, November 2026).
"""

import torch

from memplan.tracing.scratch.cpu_shapes import allocations, contiguous_copies, copy_bytes, nbytes
from memplan.tracing.scratch.layouts import memory_format
from memplan.tracing.scratch.rules import Call, Rule, Script


def in_rows(*positions: int) -> Rule:
    """A kernel that makes these operands row-major first."""
    return lambda call: allocations(contiguous_copies(call, positions))


def unpool(call: Call) -> Script:
    """MaxUnpooling.cpp max_unpooling2d_forward_out_cpu: images and places dense, as the images suggest."""
    layout, operands = memory_format(call.args[0]), call.args[:2]
    copied = {
        f"dense {place}": each for place, each in enumerate(operands) if not each.is_contiguous(memory_format=layout)
    }
    return allocations({key: nbytes(each) for key, each in copied.items()})


def pairs(points: int, *others: int) -> Rule:
    """Distance.cpp cdist_impl, _cdist_backward: two sets of points, for all batches of either, and more, row-major."""

    def rule(call: Call) -> Script:
        sets = call.args[points : points + 2]
        batches = torch.broadcast_shapes(*(each.shape[:-2] for each in sets))  # type: ignore[no-untyped-call]
        spread = [each.expand(*batches, *each.shape[-2:]) for each in sets if all(each.numel() for each in sets)]
        copies = {f"points {place}": copy_bytes(each) for place, each in enumerate(spread)}
        return allocations(copies | contiguous_copies(call, others))

    return rule


def columns(call: Call) -> Script | None:
    """TensorAdvancedIndexing.cpp index_select_out_cpu_dim1_: whole rows of what is chosen from."""
    source, dim = call.args[:2]
    return in_rows(0)(call) if source.ndim > 1 and dim % source.ndim == 1 else None


def as_it_lies_in_onednn(call: Call) -> Script | None:
    """Activation.cpp gelu_backward_out_cpu: oneDNN works in the layout of a row-major source."""
    gradient, source = call.args[:2]
    served = source.dtype is torch.float32 and source.is_contiguous() and source.numel() > 1
    if not served or call.kwargs.get("approximate", "none") != "none":
        return None
    gradients = {"given": gradient, "made": call.out}
    return allocations({}, {key: nbytes(source) for key, each in gradients.items() if each.stride() != source.stride()})


IN_ROWS: dict[str, Rule] = {
    "aten._cdist_forward.default": pairs(0),
    "aten._cdist_backward.default": pairs(1, 0, 4),
    "aten.aminmax.default": lambda call: None if "dim" in call.kwargs else in_rows(0)(call),
    "aten.fractional_max_pool2d.default": in_rows(0),  # FractionalMaxPool2d.cpp
    "aten.fractional_max_pool3d.default": in_rows(0),
    "aten.gelu_backward.default": as_it_lies_in_onednn,
    "aten.grid_sampler_2d_backward.default": in_rows(0),  # GridSampler.cpp
    "aten.grid_sampler_3d_backward.default": in_rows(0),
    "aten.index_select.default": columns,
    "aten.log_sigmoid_forward.default": in_rows(0),  # Activation.cpp log_sigmoid_forward_out_cpu
    "aten.max.default": in_rows(0),  # cpu/ReduceAllOpsKernel.cpp max_all_kernel_impl
    "aten.max_unpool2d.default": unpool,
    "aten.max_unpool3d.default": in_rows(0, 1),
    "aten.min.default": in_rows(0),
    "aten.multi_margin_loss.default": in_rows(0, 1),  # LossMultiMargin.cpp
    "aten.multi_margin_loss_backward.default": in_rows(1, 2),
    "aten.multilabel_margin_loss_forward.default": in_rows(0, 1),  # LossMultiLabelMargin.cpp
    "aten.multilabel_margin_loss_backward.default": in_rows(1, 2, 4),
    "aten.narrow_copy.default": in_rows(0),  # TensorShape.cpp narrow_copy_dense_cpu
    "aten.reflection_pad1d.default": in_rows(0),  # ReflectionPad.cpp
    "aten.reflection_pad1d_backward.default": in_rows(0),
    "aten.replication_pad1d.default": in_rows(0),
    "aten.replication_pad1d_backward.default": in_rows(0),
}
"""Op name → rule."""
