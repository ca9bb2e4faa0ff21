"""Scratch of linear algebra on CPU: copies in column order, pivots, and the work arrays that LAPACK asks for.

Follows aten/src/ATen/native/BatchLinearAlgebra.cpp and BatchLinearAlgebraKernel.cpp; every sequence was held against
torch.profiler's memory events on torch 2.13.0 with MKL 2024.2, square, tall, wide and batched, in November 2026. The
singular value decomposition's own work arrays do not pass through PyTorch's allocator.
"""

import torch

from memplan.tracing.scratch.cpu_lapack import ASK, INTEGER_WORK, REAL_WORK, WORK, Lengths, fallback, lengths
from memplan.tracing.scratch.cpu_shapes import INDEX_BYTES, allocations, argument, nbytes, product
from memplan.tracing.scratch.cpu_transposition import transposition_bytes
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script, within

_INT_BYTES = 4
"""Pivots and error codes are LAPACK's integers."""


def _batch(matrix: torch.Tensor) -> int:
    return product(matrix.shape[:-2])


def _alloc(key: str, size: int) -> tuple[Scratch, ...]:
    return (Scratch("alloc", key, size),) if size else ()


def _passing(key: str, size: int) -> tuple[Scratch, ...]:
    """Something that is gone at once."""
    return (Scratch("alloc", key, size), Scratch("free", key)) if size else ()


def _work(key: str, matrix: torch.Tensor, found: Lengths | None, columns: int) -> tuple[Scratch, ...]:
    """A work array; only bounded where the library cannot be asked."""
    item = matrix.element_size()
    if found is None:
        return (Scratch("alloc", key, 0, most=fallback(columns) * item),)
    return _alloc(key, found.work * item)


# ---------------------------------------------------------------------- QR


def _reflectors(matrix: torch.Tensor) -> tuple[Scratch, ...]:
    """LAPACK's geqrf, whose array is never shorter than a row."""
    rows, columns = matrix.shape[-2:]
    found = lengths("geqrf", matrix.dtype, rows, columns, None, max(1, rows), None, WORK, ASK)
    if found is not None:
        found = found._replace(work=max(found.work, columns))
    return _work("work of geqrf", matrix, found, columns)


def _assembled(matrix: torch.Tensor, shape: tuple[int, int], reflectors: int) -> tuple[Scratch, ...]:
    """LAPACK's orgqr."""
    rows, columns = shape
    if not matrix.numel():
        return ()
    found = lengths("orgqr", matrix.dtype, rows, columns, reflectors, None, max(1, rows), None, WORK, ASK)
    return _work("work of orgqr", matrix, found, columns)


def geqrf(call: Call) -> Script:
    """``geqrf_kernel``."""
    return Script(after=_reflectors(call.args[0]))


def householder_product(call: Call) -> Script:
    """``orgqr_kernel_impl``."""
    matrix, factors = call.args[:2]
    rows, columns = matrix.shape[-2:]
    return Script(after=_assembled(matrix, (rows, columns), factors.shape[-1]))


def qr(call: Call) -> Script:
    """``linalg_qr_out``: factors, then R's triangle (copied where matrices of a batch are cut), then Q."""
    matrix, mode = call.args[0], argument(call, 1, "mode", "reduced")
    (rows, columns), item = matrix.shape[-2:], matrix.element_size()
    least = min(rows, columns)
    triangle = nbytes(call.out[1]) if _batch(matrix) > 1 and rows > columns and mode != "complete" else 0
    steps = _alloc("factors", _batch(matrix) * least * item)
    if mode == "r" and rows > columns:
        turned = _passing("turned", transposition_bytes(matrix.mT))
        steps += (*_alloc("reflectors", nbytes(matrix)), *turned)
    first = _reflectors(matrix)
    steps += (*first, *(Scratch("free", line.key) for line in first), *_passing("triangle", triangle))
    if mode != "r":
        steps += _assembled(matrix, (rows, rows if mode == "complete" else least), least)
    return Script(after=steps)


def ormqr(call: Call) -> Script | None:
    """``ormqr_kernel``: the array as long as LAPACK says, without the last digit's reserve."""
    reflectors, factors, other = call.args[:3]
    left, transposed = argument(call, 3, "left", True), argument(call, 4, "transpose", False)
    rows, columns = other.shape[-2:]
    if not other.numel():
        return None
    letter = ("C" if other.is_complex() else "T") if transposed else "N"
    side = "L" if left else "R"
    inner = factors.shape[-1]
    stride = max(1, rows if left else columns)
    given = (side, letter, rows, columns, inner, None, stride, None, None, max(1, rows), WORK, ASK)
    found = lengths("ormqr", other.dtype, *given)
    if found is not None:
        found = found._replace(work=max(1, found.work - 1))
    return Script(after=_work("work", reflectors, found, columns if left else rows))


# ---------------------------------------------------------------------- eigenvalues, singular values


def svd(call: Call) -> Script:
    """``_linalg_svd_out``: error codes, and the matrix in column order, which is overwritten."""
    matrix = call.args[0]
    return Script(
        after=(
            *_alloc("codes", _batch(matrix) * _INT_BYTES),
            *_alloc("copy", nbytes(matrix)),
            *_passing("turned", transposition_bytes(matrix.mT)),
        )
    )


def eigh(call: Call) -> Script:
    """``_linalg_eigh_out``, ``apply_lapack_eigh``; without vectors the matrix is copied."""
    matrix, vectors = call.args[0], argument(call, 2, "compute_v", True)
    size, letter = matrix.shape[-1], argument(call, 1, "UPLO", "L").upper()
    real = (REAL_WORK, ASK) if matrix.is_complex() else ()
    given = ("V" if vectors else "N", letter, size, None, max(1, size), None, WORK, ASK, *real, INTEGER_WORK, ASK)
    found = lengths("syevd", matrix.dtype, *given)
    steps = () if vectors else (*_alloc("copy", nbytes(matrix)), *_passing("turned", transposition_bytes(matrix.mT)))
    steps += _alloc("codes", _batch(matrix) * _INT_BYTES)
    if found is None:
        # The documentation of LAPACK's syevd: 1 + 6n + 2n² elements and 3 + 5n integers, at least.
        most = (1 + size * (_most_of_row(size))) * matrix.element_size()
        return Script(after=(*steps, Scratch("alloc", "work", 0, most=most)))
    steps += (*_alloc("work", found.work * matrix.element_size()), *_alloc("integers", found.integers * _INT_BYTES))
    if matrix.is_complex():
        steps += _alloc("real work", found.real * matrix.element_size() // 2)
    return Script(after=steps)


def _most_of_row(size: int) -> int:
    return 2 * size + fallback(1) + 6 * INDEX_BYTES


def eig(call: Call) -> Script:
    """``linalg_eig_out``: is all of it finite? Then real parts and vectors, a copy in column order, LAPACK's array."""
    matrix = call.args[0]
    size, values, batch = matrix.shape[-1], "eigvals" not in call.name, _batch(matrix)
    item, real = matrix.element_size(), nbytes(matrix) // (2 if matrix.is_complex() else 1)
    masks = {f"mask {index}": matrix.numel() for index in range(3)}
    # Values alone come from a kernel that does not ask.
    checks = allocations({"magnitudes": real, **masks}).before if values else ()
    before = (*checks, *(Scratch("free", line.key) for line in reversed(checks)))
    own = (None,) if matrix.is_complex() else (None, None)
    given = (
        "N",
        "V" if values else "N",
        size,
        None,
        max(1, size),
        *own,
        None,
        1,
        None,
        max(1, size) if values else 1,
        WORK,
        ASK,
    )
    found = lengths("geev", matrix.dtype, *given, *((None,) if matrix.is_complex() else ()))
    after = _alloc("codes", batch * _INT_BYTES)
    if matrix.is_complex():
        after += (*_alloc("copy", nbytes(matrix)), *_alloc("real work", 2 * size * item // 2))
    else:
        after += _alloc("real values", 2 * batch * size * item)
        after += _alloc("real vectors", nbytes(matrix) if values else 0)
        after += _alloc("copy", nbytes(matrix))
    return Script(before=before, after=(*after, *_work("work", matrix, found, size)))


# ---------------------------------------------------------------------- solvers


def inverse(call: Call) -> Script:
    """``linalg_inv_ex_out``: a solution for the unit matrix, whose factors and pivots are not kept."""
    matrix = call.args[0]
    return within({"factors": nbytes(matrix), "pivots": _pivots(matrix), "checks": _pivots(matrix) // _INT_BYTES})


def _pivots(matrix: torch.Tensor) -> int:
    return _batch(matrix) * min(matrix.shape[-2:]) * _INT_BYTES


def least_squares(call: Call) -> Script:
    """``linalg_lstsq_out``: the matrix in column order, and what the driver wants (gelsy without another word)."""
    matrix, other, driver = call.args[0], call.args[1], argument(call, 3, "driver") or "gelsy"
    rows, columns = matrix.shape[-2:]
    sides = 1 if other.ndim < matrix.ndim else other.shape[-1]
    item = matrix.element_size()
    codes = {"codes": _batch(matrix) * _INT_BYTES}
    order = {"order": max(1, columns) * _INT_BYTES} if driver == "gelsy" else {}
    before = allocations(codes).before
    after = allocations({"copy": nbytes(matrix), **order}).before
    if driver == "gels":
        given = ("N", rows, columns, sides, None, max(1, rows), None, max(1, rows, columns), WORK, ASK)
        return Script(
            before=before, after=(*after, *_work("work", matrix, lengths("gels", matrix.dtype, *given), columns))
        )
    real = (REAL_WORK,) if matrix.is_complex() else ()
    shape = (rows, columns, sides, None, max(1, rows), None, max(1, rows, columns))
    rest = (None, None, None, WORK, ASK)
    last = (*real, INTEGER_WORK) if driver == "gelsd" else real
    found = lengths(driver, matrix.dtype, *shape, *rest, *last)
    after += _work("work", matrix, found, columns + sides)
    if matrix.is_complex():
        least = min(rows, columns)
        numbers = {"gelsy": 2 * columns, "gelss": 5 * least, "gelsd": found.real if found else 0}[driver]
        after += _alloc("real work", max(1, numbers) * item // 2)
    if driver == "gelsd" and found is not None:
        after += _alloc("integers", found.integers * _INT_BYTES)
    return Script(before=before, after=after)


def triangular(call: Call) -> Script | None:
    """``linalg_solve_triangular_out``: a matrix whose rows nor columns lie along memory is copied."""
    matrix = call.args[0]
    lies_well = matrix.is_contiguous() or matrix.mT.is_contiguous()
    return None if lies_well else within({"copy": nbytes(matrix)})


def factors(call: Call) -> Script:
    """``linalg_lu_out``: the packed factors before they are taken apart; rows as indices."""
    matrix = call.args[0]
    turned = _passing("turned", transposition_bytes(matrix.mT))
    return Script(
        after=(
            *_alloc("packed", nbytes(matrix)),
            *_alloc("pivots", _pivots(matrix)),
            *_alloc("codes", _batch(matrix) * _INT_BYTES),
            *turned,
        )
    )


def unpack(call: Call) -> Script | None:
    """``lu_unpack_out``: the permutation as indices of rows."""
    if not argument(call, 3, "unpack_pivots", True):
        return None
    packed = call.args[0]
    return within({"permutation": _batch(packed) * packed.shape[-2] * INDEX_BYTES})


def determinant(call: Call) -> Script:
    """``_linalg_det_out``, ``_linalg_slogdet_out``: pivots that differ from their place are counted."""
    matrix = call.args[0]
    count, numbers = _batch(matrix), matrix.shape[-1]
    places = numbers * (_INT_BYTES + 1 + INDEX_BYTES * count) if count else 0
    return within({"codes": count * (_INT_BYTES + matrix.element_size()), "places": places})


def symmetric_factors(call: Call) -> Script:
    """``linalg_ldl_factor_ex_out``: LAPACK's sytrf."""
    matrix = call.args[0]
    size = matrix.shape[-1]
    routine = "hetrf" if matrix.is_complex() and argument(call, 1, "hermitian", False) else "sytrf"
    found = lengths(routine, matrix.dtype, "L", size, None, max(1, size), None, WORK, ASK)
    return Script(after=_work("work", matrix, found, size))


def cholesky_solve(call: Call) -> Script:
    """``_cholesky_solve_helper_cpu``: both operands in column order."""
    other, matrix = call.args[:2]
    return Script(
        after=(
            *_passing("turned right side", transposition_bytes(other.mT)),
            *_alloc("copy", nbytes(matrix)),
            *_passing("turned", transposition_bytes(matrix.mT)),
            *_alloc("codes", _batch(matrix) * _INT_BYTES),
        )
    )


def pseudo_inverse(call: Call) -> Script:
    """``linalg_pinv`` outside of autograd: factors by singular values (or eigenvalues), their inverse, the product."""
    matrix = call.args[0]
    (rows, columns), item = matrix.shape[-2:], matrix.element_size()
    least, batch = min(rows, columns), _batch(matrix)
    if argument(call, 3, "hermitian", False):
        size = nbytes(matrix)
        before = {"values": batch * rows * item, "vectors": size}
        return Script(before=allocations({**before, "scaled": size}).before, after=eigh_work(matrix))
    before = {
        "left": batch * rows * least * item,
        "right": batch * least * columns * item,
        "values": batch * least * item,
    }
    product = {"scaled": batch * least * columns * item}
    if call.out.dtype is not matrix.dtype:
        # Under autocast both factors of the product are cast.
        product |= {
            f"{side} cast": batch * least * size * call.out.element_size()
            for side, size in (("scaled", columns), ("left", rows))
        }
    held = allocations({**before, **product}).before
    copy = max(0, nbytes(matrix) - sum(product.values()) - nbytes(call.out))
    return Script(before=held, after=_passing("more for the factors", copy))


def eigh_work(matrix: torch.Tensor) -> tuple[Scratch, ...]:
    """What is held while eigenvectors are computed, above the scaled ones that come later: nothing that lasts."""
    size = matrix.shape[-1]
    given = ("V", "L", size, None, max(1, size), None, WORK, ASK)
    real = (REAL_WORK, ASK) if matrix.is_complex() else ()
    found = lengths("syevd", matrix.dtype, *given, *real, INTEGER_WORK, ASK)
    work = 0 if found is None else found.work * matrix.element_size() + found.integers * _INT_BYTES
    return _passing("work", max(0, work - 2 * nbytes(matrix)))


def solution(call: Call) -> Script:
    """``_linalg_solve_ex`` and ``linalg_lu_solve``: a vector as a matrix, and whether pivots are in order."""
    right, pivots = (call.args[1], call.out[2]) if call.name == "aten._linalg_solve_ex.default" else call.args[2:0:-1]
    is_vector = right.ndim == 1 or (right.ndim < call.args[0].ndim)
    ordered = pivots.numel() + INDEX_BYTES + _INT_BYTES
    return within({"vector": nbytes(right) if is_vector else 0, "pivots": ordered})


_POWERS = 5
"""Matrices in each of the two buffers of the highest degree (LinearAlgebra.cpp ``compute_T18``)."""
_HELD = (4, 5, 6, 8, 9)
"""Matrices beside the result at each degree below it (``compute_T1`` … ``compute_T12``; measured on torch 2.13)."""
_NORMS = {
    4: (1.192092800768788e-07, 5.978858893805233e-04, 5.116619363445086e-02, 5.800524627688768e-01, 1.461661507209034),
    8: (2.220446049250313e-16, 2.580956802971767e-08, 3.397168839976962e-04, 4.991228871115323e-02, 0.299615891381158),
}
"""Bytes of a real number → the largest norm for which each of these degrees will do (``mexp``)."""


def exponential(call: Call) -> Script:
    """``linalg_matrix_exp`` (LinearAlgebra.cpp ``mexp_impl``): powers of the scaled argument, and sums of them.

    Batches always take the highest degree. Matrices that are squared more often than others (of larger norms, which
    are data) leave a copy of the batch, without those that are done, for each number of times. The degree of a single
    matrix follows from its norm, too: above 1.5 (0.3 in double precision) it is the highest, and none holds more. A
    real run knows the norm.
    """
    size = nbytes(call.args[0])
    if not size:
        return Script()
    powers, sums = _alloc("powers", _POWERS * size), _alloc("sums of powers", _POWERS * size)
    if _batch(call.args[0]) > 1:
        # A copy to square, and one put together again; where all numbers of times differ, one less by a matrix each.
        most = 2 * size + (_batch(call.args[0]) + 1) * size // 2
        squared = Scratch("alloc", "squared", 2 * size, most=most)
        return Script(before=(*_alloc("scaled", size), *powers, *sums, Scratch("free", "powers"), squared))
    highest = 2 * (_POWERS + 1) * size
    norm, largest = call.heard(), _NORMS.get(call.args[0].real.element_size())
    if norm is not None and largest is not None:
        held = next((held for held, most in zip(_HELD, largest, strict=True) if norm <= most), 2 * (_POWERS + 1))
        return within({"scaled, powers and sums": held * size})
    return Script(after=(Scratch("alloc", "selected and scaled, powers and sums", highest, most=highest),))


RULES: dict[str, Rule] = {
    "aten.geqrf.default": geqrf,
    "aten.linalg_householder_product.default": householder_product,
    "aten.linalg_qr.default": qr,
    "aten.ormqr.default": ormqr,
    "aten._linalg_svd.default": svd,
    "aten._linalg_eigh.default": eigh,
    "aten.linalg_eig.default": eig,
    "aten._linalg_eigvals.default": eig,
    "aten.linalg_inv_ex.default": inverse,
    "aten.linalg_lstsq.default": least_squares,
    "aten._linalg_solve_ex.default": solution,
    "aten.linalg_lu_solve.default": solution,
    "aten.linalg_solve_triangular.default": triangular,
    "aten.linalg_lu.default": factors,
    "aten.lu_unpack.default": unpack,
    "aten._linalg_det.default": determinant,
    "aten._linalg_slogdet.default": determinant,
    "aten.linalg_ldl_factor_ex.default": symmetric_factors,
    "aten._cholesky_solve_helper.default": cholesky_solve,
    "aten.cholesky_solve.default": cholesky_solve,
    "aten.linalg_pinv.atol_rtol_tensor": pseudo_inverse,
    "aten.linalg_matrix_exp.default": exponential,
}
"""Op name → rule."""
