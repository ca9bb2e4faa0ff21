"""Packages of memplan's own that are not installed: nobody's code is wrong then, and no model's."""

import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from memplan.errors import MemplanError

_MEMPLAN = Path(__file__).parents[1]


def lacking(error: BaseException, is_foreign: Callable[[str], bool]) -> MemplanError | None:
    """Return what to say of a module that one of memplan's own import statements misses; None of any other error.

    Args:
        error: What was raised.
        is_foreign: Is a file neither memplan's, torch's nor Python's own?
    """
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    last = max((at for at, frame in enumerate(frames) if _is_own(frame)), default=None)
    if last is None or any(is_foreign(frame.f_code.co_filename) for frame in frames[:last]):
        return None
    # Python takes its own frames out of a failed import statement; those of a loader, which runs what users name, stay.
    inside = frames[last + 1 :]
    if inside and inside[0].f_code.co_name != "<module>":
        return None
    missing = error.name.partition(".")[0]
    needing = str(inside[0].f_globals["__name__"]).partition(".")[0] if inside else "memplan"
    return MemplanError(
        f"memplan's own installation is not whole: {needing} needs the package '{missing}', which is not there",
        hint=f"pip install {missing}; what else is missing, pip check tells",
    )


def _is_own(frame: FrameType) -> bool:
    return Path(frame.f_code.co_filename).is_relative_to(_MEMPLAN)
