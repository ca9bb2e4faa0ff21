"""Random numbers are drawn for real: what a program slices, counts or goes round by is then a number as it may be.

``randint`` and ``randperm`` choose where a sample begins, how long a sequence is, in which order a loader goes; a few
numbers from a range (``rand``, ``uniform_``) become the place in a list, once they are made whole. Their values travel
through arithmetic to where a program reads them; conditions on them stay a matter of shares (``value_rules``), because
one draw says little of the next.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from memplan.seam.fake import FakeTensor, unset_fake_temporarily
from memplan.seam.pytree import tree_map
from memplan.tracing.knowledge import Knowledge
from memplan.tracing.nested import tensors_in
from memplan.tracing.records import Way

aten = torch.ops.aten

MOST_DRAWN = 1 << 16
"""Elements up to which draws, and what is made of them, are kept: most batches of tokens or places in a data set.

Chosen: each such tensor is then at most half a MiB of real memory."""
MOST_EVEN = 16
"""The same of numbers from a range, of which a program reads few: most are noise. Chosen."""
SEED = 0
"""Each trace draws the same numbers."""

DRAWS = frozenset({aten.randint.default, aten.randint.low, aten.randperm.default})
DRAWS |= {aten.randint.generator, aten.randint.low_generator, aten.randperm.generator}
"""Ops that draw integers."""
EVEN_DRAWS = frozenset({aten.rand.default, aten.rand.generator, aten.uniform_.default})
"""Ops that draw evenly from a range."""
SEEDS = frozenset({aten.random_.default})
"""Ops that draw from all integers of a type: the seeds of samplers (torch/utils/data/sampler.py RandomSampler)."""


class Draws:
    """Draws numbers, and follows them through arithmetic.

    Args:
        way: Draw what is likely, or the least or greatest number each time.
    """

    def __init__(self, way: Way) -> None:
        self._way = way
        with unset_fake_temporarily():
            self._generator = torch.Generator().manual_seed(SEED)

    def drawn(self, func: Any, args: tuple[Any, ...], result: torch.Tensor) -> torch.Tensor | None:
        """The elements of what one of these ops returns; None where they are too many."""
        if func in SEEDS:
            is_few = result.numel() <= MOST_EVEN and result.dtype is torch.int64
            return self._seeds(result) if is_few else None
        if func in EVEN_DRAWS:
            return self._evenly(*_range(args[1:3] if func is aten.uniform_.default else ()), result)
        numbers = [each for each in args if isinstance(each, int)]
        if result.numel() > MOST_DRAWN or result.dtype is torch.bool or not numbers:
            return None
        with unset_fake_temporarily():
            if "randperm" in str(func):
                return torch.randperm(numbers[0], generator=self._generator).to(result.dtype)
            low, high = (0, numbers[0]) if len(numbers) == 1 else numbers[:2]
            if high <= low:
                return None
            ends = {"other": (low, low + 1), "most": (high - 1, high)}
            low, high = ends.get(self._way, (low, high))
            return torch.randint(low, high, tuple(result.shape), generator=self._generator).to(result.dtype)

    def _evenly(self, low: float, high: float, result: torch.Tensor) -> torch.Tensor | None:
        if result.numel() > MOST_EVEN:
            return None
        with unset_fake_temporarily():
            share = torch.rand(tuple(result.shape), generator=self._generator, dtype=torch.float64)
            extremes = {"other": 0.0, "most": 1 - torch.finfo(result.dtype).eps}
            if self._way in extremes:
                share.fill_(extremes[self._way])
            return (low + share * (high - low)).to(result.dtype)

    def _seeds(self, result: torch.Tensor) -> torch.Tensor:
        with unset_fake_temporarily():
            return torch.empty(tuple(result.shape), dtype=torch.int64).random_(generator=self._generator)

    def carried(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, known: Mapping[int, Knowledge]
    ) -> Sequence[torch.Tensor]:
        """The elements of an op's results, where all that it works on was drawn or is known; empty where not.

        Args:
            func: The op, which has run.
            args: Its arguments.
            kwargs: Its keyword arguments.
            result: Its result.
            known: What is known of its tensor arguments, by identity.
        """
        made = tensors_in(result)
        if not made or any(each.dtype is torch.bool or each.numel() > MOST_DRAWN for each in made):
            return ()
        if torch.Tag.nondeterministic_seeded in func.tags:
            return ()

        def real(value: Any) -> Any:
            if not isinstance(value, FakeTensor):
                return value
            elements = known[id(value)]
            return elements.value if elements.value is not None else elements.drawn

        with unset_fake_temporarily():
            try:
                return tensors_in(func(*tree_map(real, args), **tree_map(real, dict(kwargs))))
            except (RuntimeError, IndexError):
                return ()


def _range(given: Sequence[float]) -> tuple[float, float]:
    """Ends of the range that is drawn from: 0 and 1 where they are not given."""
    low, high = (*given, *(0.0, 1.0)[len(given) :])
    return low, high
