"""Ops of the host on tensors with data, run for real, beside a GPU that is played.

What random integers were made of is remembered: a program that reads one could read others the next time.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import torch

from memplan.seam.fake import unset_fake_temporarily
from memplan.tracing.draws import MOST_DRAWN
from memplan.tracing.guesses import Guesses
from memplan.tracing.knowledge import Knowledge
from memplan.tracing.nested import tensors_in

_READS = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})


class HostOps:
    """Runs them.

    Args:
        values: Draws random integers, and is told where a program reads one.
    """

    def __init__(self, values: Guesses) -> None:
        self._values = values

    def run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run an op on tensors with data."""
        with unset_fake_temporarily():
            result = func(*args, **kwargs)
        drawn = [tensor for tensor in tensors_in([*args, *kwargs.values()]) if is_drawn(tensor)]
        if drawn:
            if not _READS.isdisjoint(func.tags):
                self.read(drawn[0])
            for tensor in tensors_in(result):
                _mark(tensor)
        return result

    def draw(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
        """Return random integers for an op of ``DRAWS``; None where they are too many to be real."""
        size = args[-1] if isinstance(args[-1], list | tuple) else args[:1]
        if not all(isinstance(length, int) for length in size) or prod(size) > MOST_DRAWN:
            return None
        options = {name: value for name, value in kwargs.items() if name != "generator"}
        with unset_fake_temporarily():
            plain = torch.empty(size if "randint" in str(func) else args[0], dtype=options.get("dtype") or torch.int64)
        drawn = self._values.draws.drawn(func, args, plain)
        if drawn is not None:
            _mark(drawn)
        return drawn

    def read(self, tensor: torch.Tensor) -> None:
        """Note that the program reads elements."""
        if is_drawn(tensor):
            self._values.read_drawn(Knowledge(drawn=tensor))


def reads(func: Any) -> bool:
    """Does an op hand on what its tensors hold, wherever its result is asked to lie (a tensor in ``zeros(2, n)``)?"""
    return torch.Tag.data_dependent_output in func.tags


def is_drawn(tensor: torch.Tensor) -> bool:
    """Was a tensor with data made of random integers?"""
    return "_memplan_drawn" in tensor.__dict__


def _mark(tensor: torch.Tensor) -> None:
    tensor._memplan_drawn = True  # type: ignore[attr-defined]
