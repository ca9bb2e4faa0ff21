"""Scratch of pooling, resizing and distances: operands brought into one memory format, buffers of partial results.

Follows aten/src/ATen/native/cuda: DilatedMaxPool2d.cu, AveragePool2d.cu, AdaptiveAveragePooling.cu,
UpSampleBilinear2d.cu and its kin, NLLLoss2d.cu, LossCTC.cu (``ctc_loss_backward_gpu_template``), DistanceKernel.cu
(``cdist_backward_kernel_impl``).
"""

from collections.abc import Mapping

import torch

from memplan.tracing.scratch.common_kernels import distances, rolled
from memplan.tracing.scratch.cuda_reduction import SUM, reduction_scratch
from memplan.tracing.scratch.cuda_shapes import Layout, allocations, argument, copy_if_strided, nbytes
from memplan.tracing.scratch.cuda_workspaces import product_workspaces
from memplan.tracing.scratch.layouts import format_copy_bytes, memory_format
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script


def _in_format(*positions: int, of: int) -> Rule:
    """These operands are copied where they do not lie in the memory format of the one at ``of``."""

    def rule(call: Call) -> Script | None:
        layout = memory_format(call.args[of])
        copies = allocations(
            (f"operand {position}", format_copy_bytes(call.args[position], layout)) for position in positions
        )
        return Script(before=copies) if copies else None

    return rule


def _dense(*positions: int) -> Rule:
    """These operands are copied where they are not row-major."""

    def rule(call: Call) -> Script | None:
        operands = [(position, call.args[position]) for position in positions]
        copies = [line for at, operand in operands for line in copy_if_strided(f"operand {at}", operand)]
        return Script(before=tuple(copies)) if copies else None

    return rule


def ctc_backward(call: Call) -> Script:
    """``_ctc_loss_backward(grad, log_probs, targets, lengths, lengths, neg_log_likelihood, log_alpha, …)``: betas."""
    return Script(before=(Scratch("alloc", "log beta", nbytes(argument(call, 6, "log_alpha"))),))


def distance_backward(call: Call) -> Script | None:
    """``_cdist_backward(grad, x1, x2, p, cdist)``: every pair's contribution, then their sum."""
    first, second = call.args[1], call.args[2]
    if not call.out.numel() or not second.numel():
        return None
    batch: torch.Size = torch.broadcast_shapes(first.shape[:-2], second.shape[:-2])  # type: ignore[no-untyped-call]
    shape = (batch.numel(), second.shape[-2], *first.shape[-2:])
    pairs = Layout.dense(shape, first.dtype)
    sums = reduction_scratch(call.device, pairs, {1}, first.dtype, SUM)
    return Script(after=(Scratch("alloc", "pairs", pairs.nbytes), *sums))


def euclidean_distance(call: Call) -> Script | None:
    """``_euclidean_dist(x1, x2)``: as on every device, and cuBLAS's workspace."""
    script = distances(call)
    workspaces = product_workspaces(call, through_lt=False)
    return script and Script(before=script.before, after=(*workspaces, *script.after))


def rolled_rows(call: Call) -> Script:
    """TensorTransformations.cu roll_cuda: what is rolled in one dimension is read in rows."""
    one = len(argument(call, 2, "dims", ())) == 1
    return Script(before=copy_if_strided("in rows", call.args[0])) if one else rolled(call)


IMAGE_RULES: Mapping[str, Rule] = {
    "aten.max_pool2d_with_indices.default": _in_format(0, of=0),
    "aten.max_pool2d_with_indices_backward.default": _in_format(0, 1, of=1),
    "aten.avg_pool2d.default": _in_format(0, of=0),
    "aten.avg_pool2d_backward.default": _in_format(0, 1, of=1),
    "aten._adaptive_avg_pool2d.default": _in_format(0, of=0),
    "aten._adaptive_avg_pool2d_backward.default": _in_format(0, of=1),
    "aten.upsample_nearest2d.default": _in_format(0, of=0),
    "aten.upsample_nearest2d_backward.default": _in_format(0, of=0),
    "aten.upsample_bilinear2d.default": _in_format(0, of=0),
    "aten.upsample_bilinear2d_backward.default": _in_format(0, of=0),
    "aten.nll_loss2d_forward.default": _dense(0, 1),
    "aten._ctc_loss_backward.default": ctc_backward,
    "aten._cdist_backward.default": distance_backward,
    "aten._euclidean_dist.default": euclidean_distance,
    "aten.roll.default": rolled_rows,
}
"""Op name → rule."""
