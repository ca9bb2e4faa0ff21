"""Scratch of bfloat16 matrix products on CPU: blocks that oneDNN's brgemm matmul copies and accumulates in.

Follows src/cpu/x64/matmul/brgemm_matmul_utils.cpp of oneDNN (``init_scratchpad``: one packed block of B, one of A where
its rows do not lie along memory, one of float results). Block sizes were measured on torch 2.13.0 (oneDNN 3.12) with
AVX-512 and no AMX, over 130 shapes, in November 2026. Float32 products go to MKL or BLAS, which take no tensor but a
copy of strided operands.
"""

from collections.abc import Callable

import torch

from memplan.trace.scratch.cpu_shapes import round_up
from memplan.trace.scratch.rules import Call, Script, within

_WIDTH, _FLOAT = 2, 4
"""Bytes of bfloat16 and of the accumulator."""
_MOST_ROWS, _FEWEST_ROWS = 256, 32
_COLUMNS = 64
_MOST_COLUMNS = 1024
"""Columns accumulated at once where K comes in several blocks and A must be copied."""
_SHORT_DEPTH, _LONG_DEPTH = 512, 1024
_DEPTH_STEP = 32
_BATCH_ELEMENTS = 1024
_ALIGNMENT = 128


def _rows(total: int) -> int:
    """Rows per block: of all even splits into blocks of at most 256, the first that wastes the fewest."""
    fewest = -(-total // _MOST_ROWS)
    splits = range(fewest, max(fewest, total // _FEWEST_ROWS) + 1)
    best = min(splits, key=lambda parts: parts * -(-total // parts) - total)
    return -(-total // best)


def _depth(total: int, *, copies_rows: bool) -> int:
    """Length of one block along K."""
    if total <= _SHORT_DEPTH:
        return round_up(total, _DEPTH_STEP)
    return _SHORT_DEPTH if copies_rows or total <= _LONG_DEPTH else _LONG_DEPTH


def scratch_bytes(left: torch.Tensor, right: torch.Tensor) -> int:
    """Bytes one thread takes for ``left @ right`` in bfloat16, per matrix of a batch.

    Args:
        left: ``[..., M, K]``.
        right: ``[..., K, N]``.
    """
    (rows, depth), columns = left.shape[-2:], right.shape[-1]
    copies_rows = left.stride(-1) != 1
    block_rows, block_depth = _rows(rows), _depth(depth, copies_rows=copies_rows)
    accumulated = min(columns, _COLUMNS)
    if copies_rows and depth > block_depth and columns > _COLUMNS:
        accumulated = min(round_up(columns, _COLUMNS), _MOST_COLUMNS)
    size = _BATCH_ELEMENTS + block_rows * accumulated * _FLOAT + _COLUMNS * block_depth * _WIDTH
    if copies_rows:
        # A leading dimension of a multiple of 1 KiB is stretched against 4K aliasing.
        stretched = block_depth + (_DEPTH_STEP if block_depth % _SHORT_DEPTH == 0 else 0)
        size += block_rows * stretched * _WIDTH + _ALIGNMENT
    return size


def _clones(left: torch.Tensor, right: torch.Tensor) -> Script:
    """LinearAlgebra.cpp addmm_impl_cpu_: an operand whose rows nor columns lie along memory is copied."""
    operands = {"left": left, "right": right}
    return within({name: each.numel() * each.element_size() for name, each in operands.items() if not _is_plain(each)})


def _is_plain(matrix: torch.Tensor) -> bool:
    (rows, columns), (down, across) = matrix.shape, matrix.stride()
    return (across == 1 and down >= max(1, columns)) or (down == 1 and across >= max(1, rows))


def _product(first: int) -> Callable[[Call], Script | None]:
    def rule(call: Call) -> Script | None:
        left, right = call.args[first], call.args[first + 1]
        if left.dtype is not torch.bfloat16 or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return _clones(left, right) if left.dim() == 2 else None
        return within({"blocks": torch.get_num_threads() * scratch_bytes(left, right)})

    return rule


RULES = {
    "aten.mm.default": _product(0),
    "aten.bmm.default": _product(0),
    "aten.addmm.default": _product(1),
    "aten.baddbmm.default": _product(1),
}
"""Op name → rule."""
