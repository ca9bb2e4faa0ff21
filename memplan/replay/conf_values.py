"""Reads single values of allocator options."""

import re
from collections.abc import Callable

from memplan.units import MIB, Bytes


class RefusedValueError(ValueError):
    """A value that PyTorch refuses; the message says what it must be."""


def mebibytes(least: int) -> Callable[[str], Bytes]:
    """A reader of whole numbers of MiB, at least so many."""

    def read(value: str) -> Bytes:
        if not re.fullmatch(r"\d+", value) or int(value) < least:
            raise RefusedValueError(f"a whole number of MiB{f', at least {least}' if least else ''}")
        return Bytes(int(value) * MIB)

    return read


def fraction(value: str) -> float:
    """A number from 0 to 1."""
    if not re.fullmatch(r"(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", value) or float(value) > 1:
        raise RefusedValueError("a number from 0 to 1")
    return float(value)


def flag(value: str) -> bool:
    """``True`` or ``False``, in just these letters."""
    if value not in {"True", "False"}:
        raise RefusedValueError("True or False")
    return value == "True"


def power_of_two(value: str, *, or_zero: bool = False) -> int:
    """A power of two: 1, 2, 4 and so on."""
    number = int(value) if re.fullmatch(r"\d+", value) else -1
    if number < 0 or number & (number - 1) or (number == 0 and not or_zero):
        raise RefusedValueError("made of powers of two")
    return number
