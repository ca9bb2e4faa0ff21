"""Call stacks for flame charts: outermost first, without what only an interpreter's or a compiler's author reads."""

from collections.abc import Sequence
from typing import Final

from memplan.snapshot.frames import place_of
from memplan.snapshot.recorded_frames import CATEGORY, MODULE, OP, PHASE, TENSOR, Stack
from memplan.snapshot.records import Frame

_RECORDED: Final = frozenset({CATEGORY, MODULE, OP, PHASE, TENSOR})


class StackReader:
    """Reads each distinct stack once, with or without a recorded allocation's category as the outermost level."""

    def __init__(self, *, categories: bool) -> None:
        self._categories = categories
        self._read: dict[Stack, tuple[Frame, ...]] = {}

    def read(self, stack: Stack) -> tuple[Frame, ...]:
        """The levels to show, outermost first; empty where nothing was recorded."""
        shown = self._read.get(stack)
        if shown is None:
            kept = stack if self._categories else [frame for frame in stack if frame.file != CATEGORY]
            shown = self._read[stack] = tuple(_legible(kept))[::-1]
        return shown


def label(frame: Frame) -> str:
    """``layers.3.mlp`` for a recorded level, ``forward (model.py:41)`` for a real one."""
    if frame.file in _RECORDED:
        return frame.function
    name = frame.file.replace("\\", "/").rpartition("/")[2]
    return f"{frame.function} ({name}:{frame.line})" if frame.line else frame.function


def _legible(stack: Sequence[Frame]) -> Sequence[Frame]:
    """Python levels and recorded ones; for a stack that has none (the backward pass, in C++) what it is a step of."""
    chosen = [frame for frame in stack if frame.file in _RECORDED or _is_python(frame.file)]
    place = place_of(stack)
    return chosen if chosen or not place.name else [Frame(place.file, place.line, place.name)]


def _is_python(file: str) -> bool:
    return file.endswith(".py") or file.startswith("<")
