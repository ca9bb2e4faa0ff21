"""Scratch of CPU kernels that gather elements by indices, or scatter them.

Each rule names the file under aten/src/ATen/native that it follows. Sizes are those of torch.profiler's events on
torch 2.13.0 (x86, where PyTorch is built with FBGEMM), November 2026.
"""

import torch

from memplan.tracing.scratch.cpu_shapes import FLOAT_BYTES, HALF_TYPES, INDEX_BYTES, argument, nbytes
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script, within

_ROW = 16
"""Elements of a row from which on rows are scattered whole (TensorAdvancedIndexing.cpp can_use_expanded_index_path)."""


def _sums(call: Call) -> int:
    """cpu/ScatterGatherKernel.cpp create_acc_buffer: half types are moved and added up as floats."""
    return call.out.numel() * FLOAT_BYTES if call.out.dtype in HALF_TYPES else 0


def _moves_rows(call: Call, source: torch.Tensor) -> bool:
    """TensorAdvancedIndexing.cpp can_use_expanded_index_path: does one index stand for a whole row?"""
    dim, index, out = call.args[1], call.args[2], call.out
    if dim % max(index.ndim, 1) or not (index.numel() and out.numel() and source.numel()) or not index.ndim:
        return False
    expanded = index.stride(0) == 1 and not any(
        stride > 1 or (stride == 1 and size > 1)
        for size, stride in zip(index.shape[1:], index.stride()[1:], strict=True)
    )
    whole = expanded and source.shape[1:] == index.shape[1:]
    return whole and out.dtype.is_floating_point and source.is_contiguous() and out.is_contiguous()


def _adds_rows(call: Call) -> bool:
    """Rows that are scattered are sorted by their index first, which pays for wide ones alone."""
    return _moves_rows(call, call.args[3]) and call.args[2].numel() // call.args[2].shape[0] >= _ROW


def _row_of_sums(call: Call) -> Script:
    """cpu/ScatterGatherKernel.cpp cpu_scatter_reduce_expanded_index: of half types, a row of floats for each thread."""
    index = call.args[2]
    row = torch.get_num_threads() * index.numel() // index.shape[0] * FLOAT_BYTES
    return within({"row": row if call.out.dtype in HALF_TYPES else 0})


def moved(call: Call) -> Script:
    """TensorAdvancedIndexing.cpp gather and scatter: indices of 4 bytes become those of 8."""
    index = call.args[2]
    narrow = index.numel() * INDEX_BYTES if index.dtype is torch.int32 else 0
    return within({"indices": narrow, "sums": _sums(call)})


def gathered(call: Call) -> Script | None:
    """TensorAdvancedIndexing.cpp gather: whole rows are copied one by one."""
    return None if _moves_rows(call, call.args[0]) else moved(call)


def added(call: Call) -> Script:
    """TensorAdvancedIndexing.cpp scatter_add."""
    return _row_of_sums(call) if _adds_rows(call) else moved(call)


def index_add(call: Call) -> Script | None:
    """TensorAdvancedIndexing.cpp index_add_cpu_: half types are scattered as floats where slices lie apart."""
    return Script(after=(Scratch("alloc", "sums", _sums(call), most=_sums(call)),)) if _sums(call) else None


def reduced(call: Call) -> Script:
    """TensorAdvancedIndexing.cpp scatter_reduce_two: means are sums, divided by how many there are."""
    if _adds_rows(call):
        return _row_of_sums(call)
    if argument(call, 4, "reduce") != "mean":
        return within({"sums": _sums(call)})
    empty = max(call.out.numel(), _sums(call))
    return within({"ones": nbytes(call.args[3]), "counts": nbytes(call.out), "empty": empty})


RULES: dict[str, Rule] = {
    "aten.gather.default": gathered,
    "aten.scatter.src": moved,
    "aten.scatter.value": moved,
    "aten.scatter_.src": moved,
    "aten.scatter_.value": moved,
    "aten.scatter_add.default": added,
    "aten.scatter_add_.default": added,
    "aten.index_add.default": index_add,
    "aten.index_add_.default": index_add,
    "aten.scatter_reduce.two": reduced,
    "aten.scatter_reduce_.two": reduced,
}
"""Op name → rule."""
