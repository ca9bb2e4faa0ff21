"""How much work space LAPACK asks for: the library that torch brings is asked itself, as PyTorch's kernels ask it.

A LAPACK routine called with ``lwork = -1`` computes nothing and says how long an array it wants; the answer depends on
the library and on the machine. PyTorch asks so before every factorisation (aten/src/ATen/native/
BatchLinearAlgebraKernel.cpp) and allocates the array. The routines are exported by the library of torch's CPU kernels;
where they are not, the most that reference LAPACK would want stands in.
"""

import ctypes
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

_PREFIXES = {torch.float32: "s", torch.float64: "d", torch.complex64: "c", torch.complex128: "z"}
_UNITARY = {"orgqr": "ungqr", "ormqr": "unmqr", "syevd": "heevd"}
"""Names of the routines for complex matrices, where they differ."""
_NUMBERS = {"s": ctypes.c_float, "d": ctypes.c_double, "c": ctypes.c_float, "z": ctypes.c_double}
_WIDEST_BLOCK = 64
"""Columns that reference LAPACK takes at once, at most (SRC/ilaenv.f, ISPEC = 1)."""


class Lengths(NamedTuple):
    """Elements of the arrays that a routine wants."""

    work: int
    """Of the matrix's type."""
    real: int
    """Of its real type, for complex matrices."""
    integers: int


class Query(NamedTuple):
    """Stands for the arrays that are asked about."""

    array: str


WORK, REAL_WORK, INTEGER_WORK = Query("work"), Query("real"), Query("integers")
_LOOKED_AT = 64
"""Numbers in the array that stands for one that is not asked about."""
ASK = -1
"""The length that makes a routine say what it wants."""


@cache
def lengths(routine: str, dtype: torch.dtype, *arguments: float | str | Query | None) -> Lengths | None:
    """What a routine wants, or None where nobody can be asked.

    Args:
        routine: Its name for real matrices without the letter of the type: ``geqrf``.
        dtype: Of the matrix.
        arguments: In LAPACK's order, without ``info``: dimensions, letters, None for arrays that a question does not
            touch.
    """
    letter = _PREFIXES.get(dtype)
    name = f"{letter}{_UNITARY.get(routine, routine) if dtype.is_complex else routine}_"
    call = _routine(name)
    if letter is None or call is None:
        return None
    # The real part of a complex number comes first, and is the answer.
    numbers = _NUMBERS[letter] * _LOOKED_AT
    answers: dict[Query, Any] = {WORK: numbers(), REAL_WORK: numbers(), INTEGER_WORK: (ctypes.c_int * _LOOKED_AT)()}
    call(*(_passed(value, answers) for value in arguments), ctypes.byref(ctypes.c_int()))
    return Lengths(
        work=_rounded_up(answers[WORK][0], letter),
        real=_rounded_up(answers[REAL_WORK][0], letter),
        integers=max(1, answers[INTEGER_WORK][0]),
    )


def fallback(columns: int) -> int:
    """Elements of the work array of a blocked routine, at most, where the library cannot be asked."""
    return max(1, columns) * _WIDEST_BLOCK


def _passed(value: Any, answers: dict[Query, Any]) -> Any:
    if isinstance(value, Query):
        return answers[value]
    if isinstance(value, str):
        return ctypes.byref(ctypes.c_char(value.encode()))
    if isinstance(value, float):
        return ctypes.byref(ctypes.c_double(value))
    # A question touches no array, but some libraries look at the first elements of one.
    return (ctypes.c_double * _LOOKED_AT)() if value is None else ctypes.byref(ctypes.c_int(value))


def _rounded_up(answer: float, letter: str) -> int:
    """``lapack_work_to_int``: answers are floating-point numbers, which may have lost their last digits."""
    if letter in "dz":
        return max(1, math.ceil(math.nextafter(answer, math.inf)))
    return max(1, math.ceil(answer * (1 + 2.0**-23)))


@cache
def _routine(name: str) -> Callable[..., Any] | None:
    library = _library()
    return getattr(library, name, None)


@cache
def _library() -> Any:
    """The library of torch's CPU kernels, which is loaded already."""
    for path in (Path(torch.__file__).parent / "lib").glob("*torch_cpu.*"):
        try:
            return ctypes.CDLL(str(path))
        except OSError:
            continue
    return None
