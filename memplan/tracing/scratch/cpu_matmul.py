"""Scratch of matrix products on CPU: in bfloat16, blocks that oneDNN copies and accumulates in; else copies for BLAS.

Blocks follow src/cpu/x64/matmul/brgemm_matmul_utils.cpp of oneDNN (``init_scratchpad``: one packed block of B, one of A
where its rows do not lie along memory, one of float results). Their sizes were measured on torch 2.13.0 (oneDNN 3.12)
with AVX-512 and no AMX, over 130 shapes, in November 2026. Other products go to MKL or BLAS, which take no tensor but
copies of strided and of conjugated operands (aten/src/ATen/native/LinearAlgebra.cpp; measured in the same month).
"""

from typing import NamedTuple

import torch

from memplan.seam.tensors import compute_elementwise_output_strides
from memplan.tracing.scratch.cpu_shapes import nbytes, product, round_up
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script, within

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


class _Matrix(NamedTuple):
    """How one matrix, or each of a batch, lies in memory."""

    rows: int
    columns: int
    down: int
    """Stride along a column."""
    across: int
    conjugated: bool
    nbytes: int

    @property
    def turned(self) -> "_Matrix":
        return self._replace(rows=self.columns, columns=self.rows, down=self.across, across=self.down)

    @property
    def lies_in_columns(self) -> bool:
        return self.down == 1 and self.across >= max(1, self.rows)

    @property
    def holds_columns(self) -> bool:
        """May results be written to it column by column?"""
        return self.lies_in_columns or (self.down == 1 and self.columns == 1)

    @property
    def is_copied(self) -> bool:
        """Does BLAS need a copy? It conjugates only what it transposes."""
        return self.conjugated if self.lies_in_columns else not self.turned.lies_in_columns

    @property
    def in_rows(self) -> "_Matrix":
        """A copy of it in row order."""
        return self._replace(down=self.columns, across=1)


def _scratch_bytes(left: _Matrix, right: _Matrix) -> int:
    """Bytes one thread takes for ``left @ right`` in bfloat16, the result in row order."""
    rows, depth, columns = left.rows, left.columns, right.columns
    copies_rows = left.across != 1
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


def _matrix(tensor: torch.Tensor) -> _Matrix:
    """One matrix; of a batch, the first, with conjugates resolved."""
    stride, conjugated, batch = tensor.stride(), tensor.is_conj(), product(tensor.shape[:-2])
    if conjugated and tensor.ndim > 2:
        stride, conjugated = compute_elementwise_output_strides(tensor), False
    (rows, columns), (down, across) = tensor.shape[-2:], stride[-2:]
    return _Matrix(rows, columns, down, across, conjugated, nbytes(tensor) // max(1, batch))


def _copies(result: _Matrix, left: _Matrix, right: _Matrix) -> dict[str, int]:
    """LinearAlgebra.cpp addmm_impl_cpu_: copies for BLAS, which writes columns.

    A result in row order is computed turned, from the turned operands in the other order.
    """
    if not result.nbytes or not left.columns:
        return {}
    turns = not result.holds_columns and result.turned.holds_columns
    first, second = (right.turned, left.turned) if turns else (left, right)
    needed = {
        "result": (result, not turns and not result.holds_columns),
        "first": (first, first.is_copied),
        "second": (second, second.is_copied),
    }
    return {name: matrix.nbytes for name, (matrix, is_copied) in needed.items() if is_copied}


_SMALL = 400
"""LinearAlgebra.cpp bmm_out_or_baddbmm_: multiplications in one item below which a plain loop does them in place."""
_BATCHED = frozenset({torch.float32, torch.float64, torch.complex64, torch.complex128})
"""Types that MKL multiplies in batches."""


def _copies_of_batch(result: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> dict[str, int]:
    """LinearAlgebra.cpp bmm_out_or_baddbmm_: conjugates, and for each item in turn what MKL's batches do not take."""
    operands = {"left": left, "right": right}
    sizes = {f"conjugate {name}": nbytes(each) for name, each in operands.items() if each.is_conj()}
    items = [_matrix(each) for each in (result, left, right)]
    if not result.numel() or items[0].rows * items[0].columns * items[1].columns < _SMALL:
        return sizes
    has_mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    served = has_mkl and result.dtype in _BATCHED and result.is_contiguous()
    return sizes if served and not any(_is_split(each) for each in items[1:]) else sizes | _copies(*items)


def _is_split(item: _Matrix) -> bool:
    """Does a batch of such matrices go to BLAS one by one, for neither rows nor columns lie along memory?"""
    in_rows = item.across == 1 and (item.rows == 1 or item.down >= item.columns)
    return not in_rows and not (item.down == 1 and (item.columns == 1 or item.across >= item.rows))


_LEAST = 16**3
"""mkldnn/Matmul.cpp ``mkldnn_gemm_min_size``: up to so many multiplications oneDNN is not asked."""


def _is_served(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Does oneDNN multiply? ``right``: ``[..., K, N]`` or ``[K]``."""
    multiplications = left.numel() * (right.shape[-1] if right.ndim > 1 else 1)
    is_large = multiplications > _LEAST and right.numel() > 0
    return left.dtype is torch.bfloat16 and is_large and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def _blocks(left: _Matrix, right: _Matrix) -> dict[str, int]:
    return {"blocks": torch.get_num_threads() * _scratch_bytes(left, right)}


def _blocks_of_product(result: _Matrix, left: _Matrix, right: _Matrix) -> dict[str, int]:
    """A product that comes by way of BLAS, its copies made: a result in column order is computed turned."""
    left, right = (each.in_rows if each.is_copied else each for each in (left, right))
    turns = not result.holds_columns and result.turned.holds_columns
    return _blocks(left, right) if turns else _blocks(right.turned, left.turned)


def _blocks_as_given(left: torch.Tensor, right: torch.Tensor) -> dict[str, int]:
    """A product that oneDNN gets as it is: copies of all that does not lie densely (mkldnn/Matmul.cpp)."""
    given = {"left": (left, _matrix(left)), "right": (right, _matrix(right))}
    copied = {key: nbytes(tensor) for key, (tensor, _) in given.items() if not _is_dense(tensor)}
    return copied | _blocks(*(item.in_rows if key in copied else item for key, (_, item) in given.items()))


def _is_dense(tensor: torch.Tensor) -> bool:
    """mkldnn/Utils.cpp is_mkldnn_optimized_format: in row order, or each matrix in column order."""
    return tensor.is_contiguous() or tensor.mT.is_contiguous()


def _product(first: int) -> Rule:
    def rule(call: Call) -> Script:
        left, right = call.args[first], call.args[first + 1]
        return _by_blas(call.out, left, right)

    return rule


def _by_blas(result: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> Script:
    """One product, or each of a batch in turn."""
    items = _matrix(result), _matrix(left), _matrix(right)
    is_served = _is_served(left[0], right[0]) if left.ndim > 2 else _is_served(left, right)
    return within(_copies(*items) | (_blocks_of_product(*items) if is_served else {}))


def _batched_product(first: int) -> Rule:
    def rule(call: Call) -> Script:
        left, right = call.args[first], call.args[first + 1]
        is_served = _is_served(left, right)
        return within(_blocks_as_given(left, right) if is_served else _copies_of_batch(call.out, left, right))

    return rule


def _vector_product(first: int) -> Rule:
    def rule(call: Call) -> Script:
        left, vector = call.args[first], call.args[first + 1]
        if _is_served(left, vector):
            return within(_blocks_as_given(left, vector.unsqueeze(1)))
        matrix = _matrix(left)
        # Blas.cpp addmv_impl_cpu_: gemv takes rows or columns that lie along memory.
        is_strided = not matrix.lies_in_columns and not matrix.turned.lies_in_columns
        return within({"matrix": nbytes(left)} if is_strided else {})

    return rule


def summed_products(call: Call) -> Script:
    """``addbmm``: one product after the other into the same result (LinearAlgebra.cpp addbmm_impl_)."""
    return _by_blas(call.out, call.args[1], call.args[2])


def listed_products(call: Call) -> Script:
    """``_foreach_mm``: one product after the other, each with its own scratch (ForeachOpsKernels.cpp)."""
    products = zip(call.out, *call.args[:2], strict=True)
    taken = [_passing(_by_blas(*each), f"item {index}") for index, each in enumerate(products)]
    return Script(between={(index,): lines for index, lines in enumerate(taken[:-1], start=1)}, after=taken[-1])


def _passing(script: Script, key: str) -> tuple[Scratch, ...]:
    """The scratch of one of several kernels, which is gone before the next one runs."""
    made = [line._replace(key=f"{key} {line.key}") for line in script.lines]
    return *made, *(Scratch("free", line.key) for line in reversed(made))


RULES: dict[str, Rule] = {
    "aten._foreach_mm.default": listed_products,
    "aten.mm.default": _product(0),
    "aten.addmm.default": _product(1),
    "aten.addmm_.default": _product(1),
    "aten._addmm_activation.default": _product(1),
    "aten.bmm.default": _batched_product(0),
    "aten.bmm.out": _batched_product(0),
    "aten.baddbmm.default": _batched_product(1),
    "aten.baddbmm_.default": _batched_product(1),
    "aten.addbmm.default": summed_products,
    "aten.addbmm_.default": summed_products,
    "aten.mv.default": _vector_product(0),
    "aten.addmv.default": _vector_product(1),
    "aten.addmv_.default": _vector_product(1),
}
"""Op name → rule."""
