"""Matrix products with sparse operands on the CPU.

Follows aten/src/ATen/native/sparse/SparseTensorMath.cpp (``s_addmm_out_sparse_dense_cpu``, ``_sparse_mm``: a product is
added to zeros, of which a second tensor is made), SparseCsrTensorMath.cpp (``addmm_out_sparse_compressed_cpu``) and
aten/src/ATen/native/mkl/SparseBlasImpl.cpp (MKL of PyTorch's packages takes indices of 32 bits, and both dense matrices
by rows). Compared with torch.profiler's memory events of torch 2.13.0, November 2026.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from memplan.seam.operators import RestorePythonTLSSnapshot
from memplan.tracing.sparse import compressed, coordinates
from memplan.tracing.sparse.parts import (
    Compressed,
    compressed_parts,
    coo_parts,
    is_coo,
    is_sparse,
    make_compressed,
    make_coo,
)

if TYPE_CHECKING:
    from memplan.tracing.guesses import Guesses

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


def product(guesses: "Guesses", func: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """``mm``: of zeros and the product."""
    left: torch.Tensor = args[0]
    right: torch.Tensor = args[1]
    if is_sparse(left) and is_sparse(right):
        return between_sparse(guesses, func, args, kwargs)
    if left.layout is torch.sparse_csc:
        left = compressed.swap(left, torch.sparse_csr)
    dense = right if is_sparse(left) else left
    zeros = dense.new_zeros((left.shape[0], right.shape[1]))
    return added_product(guesses, func, (zeros, left, right), kwargs)


def added_product(guesses: "Guesses", _: Any, args: Args, __: Kwargs) -> torch.Tensor:
    """``addmm`` of one sparse factor: the result, and for compressed factors what MKL is handed."""
    left: torch.Tensor = args[1]
    right: torch.Tensor = args[2]
    shape = (left.shape[0], right.shape[1])
    if is_coo(left):
        return right.new_empty(shape)
    if is_coo(right):
        # What is multiplied is the other way round, with a transposed factor and a transposed result.
        turned = coordinates.transpose(guesses, None, (right,), {})
        result = left.new_empty(shape[::-1])
        del turned
        return result.t()
    dense = right if is_sparse(left) else left
    result = dense.new_empty(shape)
    factor = left if is_sparse(left) else right
    if factor.layout is torch.sparse_csc and is_sparse(left):
        factor = compressed.swap(factor, torch.sparse_csr)
    elif factor is right and factor.layout is torch.sparse_csr:
        # The transposed factor is one of columns, which MKL is not given either.
        factor = compressed.swap(compressed.transpose(guesses, None, (factor,), {}), torch.sparse_csr)
    work = [] if _lies_by_rows(dense if factor is left or is_sparse(left) else dense.t()) else [dense.clone()]
    work += _short_indices(factor)
    del work
    return result


def below_autograd(guesses: "Guesses", func: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """``_sparse_addmm``: it calls ``addmm`` (SparseTensorMath.cpp), whose operands autocast brings to its own type."""
    with RestorePythonTLSSnapshot():
        is_mixed, low = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    if is_mixed:
        args = tuple(each.to(low) if each.is_floating_point() else each for each in args[:3])
    return added_product(guesses, func, args, kwargs)


def with_vector(guesses: "Guesses", func: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """``mv``: a product with one column."""
    matrix: torch.Tensor = args[0]
    vector: torch.Tensor = args[1]
    if is_coo(matrix):
        return product(guesses, func, (matrix, vector.unsqueeze(-1)), kwargs).squeeze(-1)
    result = vector.new_empty(matrix.shape[0])
    if matrix.layout is torch.sparse_csc:
        matrix = compressed.swap(matrix, torch.sparse_csr)
    work = _short_indices(matrix)
    del work
    return result


def in_batches(_: "Guesses", __: Any, args: Args, ___: Kwargs) -> torch.Tensor:
    """``bmm`` (SparseTensorMath.cpp bmm_out_sparse_cpu): the result."""
    left, right = args[:2]
    dense: torch.Tensor = right if is_sparse(left) else left
    return dense.new_empty((left.shape[0], left.shape[1], right.shape[2]))


def between_sparse(guesses: "Guesses", _: Any, args: Args, __: Kwargs) -> torch.Tensor:
    """SparseMatMul.cpp sparse_sparse_matmul_cpu: both with counted rows, and a result of which its data say how long.

    Assumed are elements spread evenly: of all pairs that meet, those count once that fall on one element.
    """
    left, right = args[:2]
    if not is_coo(left):
        left, right = (compressed.to_coo(each) for each in (left, right))
    left, right = (coordinates.coalesced(guesses, each) for each in (left, right))
    indices, values = coo_parts(left)
    rows = [indices.new_empty(length + 1) for length in (left.shape[0], right.shape[0], left.shape[0])]
    elements, places = (int(left._nnz()), int(right._nnz())), left.shape[0] * right.shape[1]
    pairs = elements[0] * elements[1] // max(left.shape[1], 1)
    guesses.assume("elements of sparse factors are spread evenly over rows and columns")
    most = min(elements[0] * right.shape[1], elements[0] * elements[1], places)
    count = guesses.between(guesses.occupied(pairs, places), least=min(most, 1), most=most)
    result = indices.new_empty((2, count)), values.new_empty(count)
    del rows
    return make_coo(*result, (left.shape[0], right.shape[1]), coalesced=True)


def sampled(_: "Guesses", __: Any, args: Args, ___: Kwargs) -> torch.Tensor:
    """``sparse_sampled_addmm`` (SparseBlas.cpp): a tensor like the first, and dense factors by rows."""
    where, left, right = args[:3]
    pointers, plain, values = compressed_parts(where)
    parts = Compressed(torch.empty_like(pointers), torch.empty_like(plain), torch.empty_like(values))
    work = [each.clone() for each in (left, right.t()) if not _lies_by_rows(each)]
    del work
    return make_compressed(parts, where.shape, where.layout)


def _lies_by_rows(matrix: torch.Tensor) -> bool:
    """SparseBlasImpl.cpp is_blas_compatible_row_major_order."""
    down, across = matrix.stride()[-2:]
    return across == 1 and down >= max(1, matrix.shape[-1])


def _short_indices(matrix: torch.Tensor) -> list[torch.Tensor]:
    parts = compressed_parts(matrix)[:2]
    return [part.to(torch.int32) for part in parts if part.dtype is not torch.int32]
