"""Variables of running code: roots from which objects are kept. Torch-free."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

_OWN = str(Path(__file__).parent)
"""Variables of this room say nothing about the user's program."""


def running_frames() -> Iterator[FrameType]:
    """Of every thread, innermost first; this room's left out."""
    for innermost in sys._current_frames().values():  # noqa: SLF001 - the documented way to other threads' frames.
        frame: FrameType | None = innermost
        while frame is not None:
            if not frame.f_code.co_filename.startswith(_OWN):
                yield frame
            frame = frame.f_back


def local_variables() -> list[tuple[str, Any]]:
    """``function.variable`` and value, of every function that runs in any thread."""
    found = []
    for frame in running_frames():
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # A function's; a module's are its globals.
            found += [(f"{frame.f_code.co_name}.{name}", value) for name, value in frame.f_locals.items()]
            _forget(frame)
    return found


def _forget(frame: FrameType) -> None:
    """Before Python 3.13 ``f_locals`` leaves a copy in the frame, which would keep every value until the frame ends."""
    if sys.version_info < (3, 13):
        frame.f_locals.clear()


def module_variables() -> dict[int, str]:
    """Modules by the address of their dict of globals."""
    modules: list[tuple[str, object]] = list(sys.modules.items())  # None, and lazy stand-ins, are among them.
    found: dict[int, str] = {}
    for name, each in modules:
        if isinstance(each, ModuleType):
            found.setdefault(id(vars(each)), name)  # ``__mp_main__`` is another name of ``__main__``.
    return found
