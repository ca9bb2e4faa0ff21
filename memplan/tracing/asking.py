"""Who asks data now: the innermost frame beneath memplan and beneath what torch only passes a call on with."""

import sys
from functools import cache
from pathlib import Path
from types import FrameType

import torch

from memplan.job.usercode import display, innermost, installed_part, is_foreign, is_user_file
from memplan.tracing.heard import Place
from memplan.tracing.program_text import Question, question

_TORCH = Path(torch.__file__).parent
_OPTIMIZERS = _TORCH / "optim"
_PLUMBING = frozenset({"_tensor.py", "_ops.py", "overrides.py", "_subclasses", "utils", "_library", "library.py", "_C"})
_PLUMBING |= {"_compile.py", "_dynamo"}
"""Files and folders of torch that pass calls on, and ask nothing for themselves."""


def asking() -> FrameType | None:
    """The innermost frame that asks; None outside of any."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not _may_ask(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def asked_at() -> Place | None:
    """Return the place of the program that asks data now; None outside of any."""
    frame = asking()
    return None if frame is None else question(frame).place


def place_of_program() -> str:
    """Where the user's program is now, for the end of a sentence; empty where that is not known."""
    frames: list[tuple[str, int]] = []
    frame = asking()
    while frame is not None:
        frames.insert(0, (frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    found = innermost(frames)
    return f" ({installed_part(found)})" if found else ""


def is_made_whole() -> bool:
    """Is the number that is read now made an integer at once?"""
    frame = asking()
    return frame is not None and question(frame).is_whole


def minds(asked: Question) -> bool:
    """Is it the user's own control flow, or that of an optimizer, and no check inside a library?"""
    return not _is_library(asked.file)


def searches(asked: Question) -> bool:
    """Is it the search for a step's length along a direction? It seldom goes beyond the second try."""
    return any(word in asked.function.lower() for word in ("wolfe", "line_search", "linesearch", "backtrack"))


def shown(asked: Question) -> str:
    """File and line of a question, as reports name them."""
    return f"{installed_part(display(asked.file))}:{asked.line}"


@cache
def is_optimizer(filename: str) -> bool:
    """Is it a file of torch's optimizers?"""
    return Path(filename).is_relative_to(_OPTIMIZERS)


@cache
def _is_library(filename: str) -> bool:
    return not is_user_file(filename) and not is_optimizer(filename)


@cache
def _may_ask(filename: str) -> bool:
    if is_foreign(filename):
        return True
    path = Path(filename)
    return path.is_relative_to(_TORCH) and path.relative_to(_TORCH).parts[0] not in _PLUMBING
