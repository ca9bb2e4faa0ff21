"""What calls of a module without gradients did, and what one would do whose input is longer than theirs.

A text that grows token by token is given to a model again and again. Sizes of tensors are polynomials in its length,
of the second degree where each token looks at each other: three calls tell all others, and a fourth shows whether so.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import torch

from memplan.tracing.ledger import Entry
from memplan.tracing.records import Op

Sizes = tuple[int, ...]
FURTHER = 1.5
"""By how much an input may be longer than those that were seen before a call runs again. Chosen: a text of thousands of
tokens then takes about twenty calls."""
SEEN = 3
"""Calls through which the polynomials go."""


class Result(NamedTuple):
    """A tensor that a call returned."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    entry: Entry
    at_peak: bool
    """Was it there when the call held most?"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a call left behind, and what it held at its peak."""

    leaves: tuple[Any, ...]
    """Of what it returned; a ``Result`` for each tensor."""
    structure: Any
    """How they are put together."""
    held: tuple[Entry, ...]
    """Allocations of its own at its peak, results apart."""
    op: Op | None
    """An op of it, where ops are recorded."""

    @property
    def numbers(self) -> Sizes:
        """All that may differ between calls of different sizes."""
        shapes = (length for leaf in self._results() for length in (*leaf.size, *leaf.stride))
        return (*shapes, *(entry.nbytes for entry in self.held))

    @property
    def rest(self) -> Any:
        """What may not."""
        leaves = [
            (leaf.dtype, leaf.at_peak, len(leaf.size)) if isinstance(leaf, Result) else leaf for leaf in self.leaves
        ]
        return leaves, self.structure, [(entry.place, entry.role) for entry in self.held], self.op is None

    def _results(self) -> Iterator[Result]:
        return (leaf for leaf in self.leaves if isinstance(leaf, Result))

    def with_numbers(self, numbers: Sizes) -> "Seen":
        """The same of other sizes."""
        given = iter(numbers)
        leaves = tuple(
            leaf._replace(size=tuple(next(given) for _ in leaf.size), stride=tuple(next(given) for _ in leaf.stride))
            if isinstance(leaf, Result)
            else leaf
            for leaf in self.leaves
        )
        held = tuple(dataclasses.replace(entry, nbytes=next(given)) for entry in self.held)
        return dataclasses.replace(self, leaves=leaves, held=held)


class GrowingCalls:
    """Calls that differ in sizes alone."""

    def __init__(self) -> None:
        self._runs: list[tuple[Sizes, Seen]] = []
        self._is_confirmed = False

    def add(self, sizes: Sizes, seen: Seen | None) -> None:
        """Take in a call that has run; None: it cannot be repeated."""
        if seen is None:
            self._runs, self._is_confirmed = [], False
            return
        foreseen = self._continued(sizes)
        self._is_confirmed = foreseen is not None and foreseen.numbers == seen.numbers and foreseen.rest == seen.rest
        if foreseen is not None and not self._is_confirmed:
            self._runs = []
        self._runs.append((sizes, seen))

    def foreseen(self, sizes: Sizes) -> Seen | None:
        """What a call would do; None where it is to run."""
        if not self._is_confirmed or any(
            size > FURTHER * last for size, last in zip(sizes, self._runs[-1][0], strict=True)
        ):
            return None
        return self._continued(sizes)

    def _continued(self, sizes: Sizes) -> Seen | None:
        """What a call would do, if the last calls tell; None where they do not."""
        runs = self._runs[-SEEN:]
        varied = next(
            (at for at, lengths in enumerate(zip(*(run for run, _ in runs), strict=True)) if len({*lengths}) > 1), None
        )
        if len(runs) < SEEN or varied is None or any(seen.rest != runs[0][1].rest for _, seen in runs):
            return None
        points = [run[varied] for run, _ in runs]
        if len({*points}) < SEEN or sizes != _through(points, [run for run, _ in runs], sizes[varied]):
            return None
        numbers = _through(points, [seen.numbers for _, seen in runs], sizes[varied])
        return None if numbers is None else runs[-1][1].with_numbers(numbers)


def _through(points: Sequence[int], values: Sequence[Sizes], at: int) -> Sizes | None:
    """Polynomials through these values (Lagrange), at another point; None where they are no sizes there."""
    weights = [Fraction(1) for _ in points]
    for index, point in enumerate(points):
        for other in points:
            if other != point:
                weights[index] *= Fraction(at - other, point - other)
    sums = [
        sum(weight * value for weight, value in zip(weights, column, strict=True))
        for column in zip(*values, strict=True)
    ]
    if any(total.denominator != 1 or total < 0 for total in map(Fraction, sums)):
        return None
    return tuple(map(int, sums))
