"""Turns of torch's ring attention: of many that are alike, a few run.

Every rank attends to its own keys and values, then to those of each other rank in turn. Torch's loop asks of a turn's
number whether it is the first, the last, or one whose keys come from an earlier rank. On the first rank none does, so
that all turns between the first and the last are the same program on the same sizes. Torch's own functions run, with
another ``range``; that turns are alike is not taken for granted (``memplan.tracing.turns``).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FunctionType
from typing import Any

from memplan.seam.find import owner_of
from memplan.seam.patches.sharding import RINGS
from memplan.seam.replace import Replacement, attribute, replaced
from memplan.tracing.recorder import Recorder
from memplan.tracing.run_few import run_few
from memplan.tracing.turns import leading_turns


def few_turns(recorder: Recorder) -> AbstractContextManager[None]:
    """Let rings run their leading turns and the last, and tell the recorder what stands for the others."""

    def turns(count: int) -> Iterator[int]:
        return run_few(recorder, count, leading_turns(count), last=1)

    present = (row for row in RINGS if owner_of(row) is not None)
    return replaced(Replacement(row.path, _with_range(attribute(row.path), turns)) for row in present)


def _with_range(function: FunctionType, turns: Callable[[int], Iterator[int]]) -> Callable[..., Any]:
    """The same code, in which ``range`` means something else."""
    scope = {**function.__globals__, "range": turns}
    made = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made
