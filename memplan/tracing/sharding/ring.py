"""Turns of torch's ring attention: of many that are alike, a few run.

Every rank attends to its own keys and values, then to those of each other rank in turn. Torch's loop asks of a turn's
number whether it is the first, the last, or one whose keys come from an earlier rank. On the first rank none does, so
that all turns between the first and the last are the same program on the same sizes. Torch's own functions run, with
another ``range``; that turns are alike is not taken for granted (``memplan.tracing.turns``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from memplan.seam.find import owner_of
from memplan.seam.patch import Patch
from memplan.seam.patches.sharding import GATHERED_KEYS, RINGS
from memplan.seam.replace import Replacement, attribute, replaced
from memplan.tracing.recorder import Recorder
from memplan.tracing.run_few import run_few
from memplan.tracing.turns import leading_turns


def few_turns(recorder: Recorder) -> AbstractContextManager[None]:
    """Let rings run their leading turns and the last, and tell the recorder what stands for the others."""

    def turns(count: int) -> Iterator[int]:
        return run_few(recorder, count, leading_turns(count), last=1)

    return replaced(_renaming(RINGS, range=turns))


@dataclass(frozen=True, slots=True)
class GatheredKeys:
    """What stands one part after the other in a tensor, cut where somebody asks for a part."""

    tensor: torch.Tensor
    """All of it."""
    parts: int = 1
    """How many there are, of the same size."""

    def chunk(self, parts: int) -> "GatheredKeys":
        """Return the same in so many parts."""
        return GatheredKeys(self.tensor, parts)

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return a view of one part; of those before the first, the last ones."""
        size = self.tensor.shape[0] // self.parts
        return self.tensor.narrow(0, index % self.parts * size, size)


def one_part_at_a_time() -> AbstractContextManager[None]:
    """Let a turn look at one rank's part of what was gathered, where torch takes views of the parts of all ranks."""
    scope = attribute(GATHERED_KEYS.path).__globals__ if owner_of(GATHERED_KEYS) is not None else {}

    def waited(gathered: torch.Tensor | GatheredKeys) -> GatheredKeys:
        return gathered if isinstance(gathered, GatheredKeys) else GatheredKeys(scope["_maybe_wait"](gathered))

    return replaced(_renaming((GATHERED_KEYS,), _maybe_wait=waited))


def _renaming(rows: Iterable[Patch], **names: Any) -> Iterator[Replacement]:
    """Of the functions that are there the same code, in which some names mean something else."""
    present = (row for row in rows if owner_of(row) is not None)
    return (Replacement(row.path, _with(attribute(row.path), names)) for row in present)


def _with(function: FunctionType, names: Mapping[str, Any]) -> Callable[..., Any]:
    scope = {**function.__globals__, **names}
    made = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made
