"""Which level of a call stack a user would name: their own line, or else the nearest thing that says something."""

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from memplan.snapshot.recorded_frames import OP, REGION, TENSOR
from memplan.snapshot.records import Frame

_PYTHON: Final = re.compile(r"\.(py|ipynb)$|^<(?!unknown)")
"""Python's own frames; everything else in a stack is C++ or the interpreter's C."""
_LIBRARY: Final = re.compile(
    r"[\\/](site|dist)-packages[\\/]"
    r"|[\\/]lib(64)?[\\/]python\d+(\.\d+)?[\\/]"
    r"|[\\/]torch[\\/](_\w+|amp|autograd|cuda|distributed|fx|library|nn|optim|utils)([\\/]|\.py$)"
    r"|^<(frozen|string|eval_with_key|__array_function__)",
    re.IGNORECASE,
)
"""Installed packages, the standard library, and torch built from source."""
_TORCH: Final = re.compile(r"[\\/]torch[\\/]")
_BACKWARD: Final = re.compile(r"torch::autograd::(?:generated::)?(?!Engine|Node|Function)(\w+)::apply\b")
_OP: Final = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)\b")


class PlaceKind(StrEnum):
    """What sort of place in a program asked for memory."""

    USER = "user"
    """A line of the user's own code."""
    LIBRARY = "library"
    """A line of an installed package: no line of the user's is in the stack."""
    BACKWARD = "backward"
    """A step of the backward pass, which has no Python lines."""
    OP = "op"
    """An op called from C++."""
    TRACED = "traced"
    """A parameter or an op that memplan's own recording names, or a region of a measured run."""
    BEFORE = "before"
    """Not known: it was there before the recording began, and gone when it ended."""
    UNKNOWN = "unknown"
    """No stack was recorded, or nothing in it says anything."""


class CodePlace(NamedTuple):
    """Where in a program memory was asked for."""

    kind: PlaceKind
    """What sort of place."""
    file: str
    """Path as recorded; empty where there is none."""
    line: int
    """Line number; 0 where there is none."""
    name: str
    """Function, backward step or op; empty where unknown."""


BEFORE_RECORDING: Final = (Frame("", 0, "before the recording"),)
"""Stands for the call stack of what was alive when the recording began."""


def place_of(stack: Sequence[Frame]) -> CodePlace:
    """The innermost of the user's own frames; without one a library's, a step of the backward pass, an op."""
    if stack == BEFORE_RECORDING:
        return CodePlace(PlaceKind.BEFORE, "", 0, "")
    python = [frame for frame in stack if _is_python(frame.file)]
    user = next((frame for frame in python if not _is_library(frame.file)), None)
    if user is not None:
        return CodePlace(PlaceKind.USER, *user)
    # Before library code: a hook or a compiled backward step says less than the op that it belongs to.
    for kind, pattern in ((PlaceKind.BACKWARD, _BACKWARD), (PlaceKind.LIBRARY, None), (PlaceKind.OP, _OP)):
        if pattern is None and python:
            return CodePlace(kind, *python[0])
        found = pattern and next(filter(None, (pattern.search(frame.function) for frame in stack)), None)
        if found:
            return CodePlace(kind, "", 0, found[1])
    # What memplan itself recorded: a parameter's name, an op's, or a region's whole path.
    if stack and stack[0].file == REGION:
        return CodePlace(PlaceKind.TRACED, "", 0, "/".join(frame.function for frame in reversed(stack)))
    own = next((frame for frame in stack if frame.file in (TENSOR, OP)), None)
    return CodePlace(PlaceKind.TRACED, "", 0, own.function) if own else CodePlace(PlaceKind.UNKNOWN, "", 0, "")


def inner_place(stack: Sequence[Frame]) -> CodePlace | None:
    """The innermost Python frame outside torch, where a library lies between the user's line and the memory.

    None where the user's own frame is the innermost one, or where there is no frame of the user's at all.
    """
    python = (frame for frame in stack if _is_python(frame.file))
    inner = next((frame for frame in python if not (_is_library(frame.file) and _TORCH.search(frame.file))), None)
    if inner is None or not _is_library(inner.file) or place_of(stack).kind is not PlaceKind.USER:
        return None
    return CodePlace(PlaceKind.LIBRARY, *inner)


@lru_cache(maxsize=4096)
def _is_python(file: str) -> bool:
    return _PYTHON.search(file) is not None


@lru_cache(maxsize=4096)
def _is_library(file: str) -> bool:
    return _LIBRARY.search(file) is not None
