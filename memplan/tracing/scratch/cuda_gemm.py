"""Scratch of matrix products: operands that cuBLAS cannot address are cloned; libraries keep or borrow work spaces.

Follows aten/src/ATen/native/cuda/cuBlasCommonArgs.h (``prepare_matrix_for_cublas``) and Blas.cpp
(``prepare_batch_matrix_for_cublas``), which for a row-major result prepare the second operand first.
``cuda_workspaces`` has the work spaces.
"""

from collections.abc import Callable, Mapping

import torch

from memplan.tracing.refs import is_dense
from memplan.tracing.scratch.cuda_shapes import frees, nbytes
from memplan.tracing.scratch.cuda_workspaces import adds_bias_through_lt, product_workspaces
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script


def matrix_is_addressable(matrix: torch.Tensor) -> bool:
    """Can cuBLAS read a matrix as it lies, possibly transposed?"""
    rows, columns = matrix.shape
    down, across = matrix.stride()
    if (down == 1 and across >= max(1, rows)) or (across == 1 and down >= max(1, columns)):
        return True
    # Nearly every matrix has passed by now; this asks about odd strides of dimensions of size one.
    return is_dense(matrix)


def batch_is_addressable(batch: torch.Tensor) -> bool:
    """The same for a batch of matrices; expanded (stride 0) ones are not."""
    _, rows, columns = batch.shape
    _, down, across = batch.stride()
    if (down == 1 and across >= max(1, rows)) or (across == 1 and down >= max(1, columns)):
        return True
    return batch.is_contiguous() and down != 0 and across != 0


def _always(_: torch.Tensor) -> bool:
    return True


def _never(_: Call) -> bool:
    return False


def _always_through_lt(_: Call) -> bool:
    return True


def _rule(
    first_operand: int,
    addressable: Callable[[torch.Tensor], bool],
    through_lt: Callable[[Call], bool] = _never,
) -> Rule:
    def rule(call: Call) -> Script | None:
        operands = call.args[first_operand : first_operand + 2]
        clones = [
            Scratch("alloc", f"operand{position}", nbytes(operand))
            for position, operand in reversed(list(enumerate(operands)))
            if not addressable(operand)
        ]
        workspaces = product_workspaces(call, through_lt=through_lt(call))
        return Script(after=(*clones, *workspaces, *frees(*(clone.key for clone in reversed(clones)))))

    return rule


_MATRICES = _rule(0, matrix_is_addressable)
_ADDED_MATRICES = _rule(1, matrix_is_addressable, adds_bias_through_lt)
_BATCHES = _rule(0, batch_is_addressable)
_ADDED_BATCHES = _rule(1, batch_is_addressable)
_WORKSPACE_ONLY = _rule(0, _always)
_LT_ONLY = _rule(0, _always, _always_through_lt)

GEMM_RULES: Mapping[str, Rule] = {
    "aten.mm.default": _MATRICES,
    "aten.mm.out": _MATRICES,
    "aten.addmm.default": _ADDED_MATRICES,
    "aten.addmm_.default": _ADDED_MATRICES,
    "aten.addmm.out": _ADDED_MATRICES,
    "aten._addmm_activation.default": _ADDED_MATRICES,
    "aten.bmm.default": _BATCHES,
    "aten.bmm.out": _BATCHES,
    "aten.baddbmm.default": _ADDED_BATCHES,
    "aten.baddbmm_.default": _ADDED_BATCHES,
    "aten.linear.default": _WORKSPACE_ONLY,
    "aten.addbmm.default": _WORKSPACE_ONLY,
    "aten.mv.default": _WORKSPACE_ONLY,
    "aten.addmv.default": _WORKSPACE_ONLY,
    "aten.dot.default": _WORKSPACE_ONLY,
    "aten.vdot.default": _WORKSPACE_ONLY,
    "aten._int_mm.default": _WORKSPACE_ONLY,
    "aten._scaled_mm.default": _LT_ONLY,
    "aten._scaled_mm_v2.default": _LT_ONLY,
    "aten._scaled_mm.out": _LT_ONLY,
    "aten._scaled_mm_v2.out": _LT_ONLY,
    "aten.mm.dtype": _MATRICES,
    "aten.addmm.dtype": _ADDED_MATRICES,
    "aten.bmm.dtype": _BATCHES,
    "aten.baddbmm.dtype": _ADDED_BATCHES,
}
"""Op name → rule."""
