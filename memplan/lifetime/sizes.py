"""How a storage's size depends on the length (or the batch): exact polynomials found from a few traces.

Most sizes are polynomials of the length itself (linear in activations, quadratic in attention scores). Some kernels pad
first, to 32, 64 or 128; their sizes are polynomials of the padded length. A form is believed only if it holds at one
more traced length than it takes to write it down, unless a trace at the end confirms what came of it.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

PADDINGS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Multiples that kernels pad a length to; flash attention takes 128, efficient attention 32, vectors up to 16."""
HIGHEST_DEGREE = 2
"""Attention scores are quadratic in the length; nothing that PyTorch allocates is cubic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Polynomial:
    """``coefficients[0] + coefficients[1] * x + …`` with ``x`` the length rounded up to a multiple of ``padding``."""

    coefficients: tuple[Fraction, ...]
    """Exact; the last is not zero unless it is the only one."""
    padding: int = 1
    """What the length is rounded up to."""

    def at(self, length: int) -> int:
        """The size in bytes."""
        x = -(-length // self.padding) * self.padding
        value = Fraction(0)
        for coefficient in reversed(self.coefficients):
            value = value * x + coefficient
        # Whole at every length that was traced; anywhere else a fraction of a byte is a byte.
        return max(0, -(-value.numerator // value.denominator))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepwiseSize:
    """A size of no known form: that of the next longer traced length, which is at least as large where sizes grow."""

    lengths: tuple[int, ...]
    """Traced lengths, ascending."""
    sizes: tuple[int, ...]
    """Bytes at each."""

    def at(self, length: int) -> int:
        """The size in bytes."""
        return self.sizes[min(bisect_left(self.lengths, length), len(self.sizes) - 1)]


Size = Polynomial | StepwiseSize


def fit(points: Mapping[int, int], *, spare: int = 1) -> tuple[Size, ...]:
    """Every form that gives all known sizes, the simplest first; ``Steps`` alone if none is confirmed.

    Several are left where the known lengths do not tell paddings apart: one at which they differ decides.

    ``points`` maps lengths to bytes, as traced; a form must hold at ``spare`` of them beyond those that write it down.
    """
    lengths = tuple(sorted(points))
    sizes = tuple(points[length] for length in lengths)
    forms: list[Size] = []
    for padding in PADDINGS:
        coefficients = _interpolated(lengths, sizes, padding, spare)
        if coefficients is not None:
            forms.append(Polynomial(coefficients=coefficients, padding=padding))
            if len(coefficients) == 1:
                break  # A constant is padded to itself.
    return tuple(forms) or (StepwiseSize(lengths=lengths, sizes=sizes),)


def _interpolated(
    lengths: Sequence[int], sizes: Sequence[int], padding: int, spare: int
) -> tuple[Fraction, ...] | None:
    """Coefficients of the polynomial of least degree through all points, if enough are left to confirm it."""
    points: dict[int, int] = {}
    for length, size in zip(lengths, sizes, strict=True):
        if points.setdefault(-(-length // padding) * padding, size) != size:
            return None
    xs = tuple(points)
    differences = _newton(xs, tuple(points.values()))
    while len(differences) > 1 and not differences[-1]:
        differences.pop()
    degree = len(differences) - 1
    # Without a point to spare every sequence of sizes has some polynomial.
    confirmed = len(lengths) > degree + spare and (degree == 0 or len(xs) > degree + spare)
    return _expanded(xs, differences) if degree <= HIGHEST_DEGREE and confirmed else None


def _newton(xs: Sequence[int], ys: Sequence[int]) -> list[Fraction]:
    """Divided differences: coefficients in Newton's form."""
    table = [Fraction(y) for y in ys]
    for order in range(1, len(xs)):
        for index in range(len(xs) - 1, order - 1, -1):
            table[index] = (table[index] - table[index - 1]) / (xs[index] - xs[index - order])
    return table


def _expanded(xs: Sequence[int], differences: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Newton's form multiplied out into powers of x."""
    powers = [differences[-1]]
    for x, difference in zip(reversed(xs[: len(differences) - 1]), reversed(differences[:-1]), strict=True):
        shifted = [Fraction(0), *powers]
        powers = [high - x * low for high, low in zip(shifted, [*powers, Fraction(0)], strict=True)]
        powers[0] += difference
    return tuple(powers)
