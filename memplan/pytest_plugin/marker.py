"""From a marker's words to a limit. Everything that is wrong is told at once, with what was meant."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from memplan.errors import MemplanError, UsageError, several
from memplan.hardware.catalog import load_profile
from memplan.project.keywords import read_options
from memplan.pytest_plugin.records import MarkerLimit
from memplan.units import parse_size

_T = TypeVar("_T")
_FORM = '@pytest.mark.limit_gpu_memory("70 GiB", gpu="h100-80g", target="train.py:model", batch_size=8)'


def read_marker(args: Sequence[object], kwargs: Mapping[str, object], file: Path) -> MarkerLimit:
    """Read one marker.

    Args:
        args: Of the marker: nothing, or the limit.
        kwargs: Its ``gpu``, ``target`` and the job's options, called as in ``JobSpec``, written as in a project file.
        file: Named as where options come from; relative paths begin at its folder.

    Returns:
        What it allows.

    Raises:
        UsageError: Something is wrong with it.
    """
    problems = [f"limit_gpu_memory takes one limit, not {len(args)} of them"] if len(args) > 1 else []
    size = _collect(problems, partial(_size, args[0])) if args else None
    options = {name: value for name, value in kwargs.items() if name not in ("gpu", "target")}
    gpu, target, job = kwargs.get("gpu"), kwargs.get("target"), None
    profile = _collect(problems, partial(load_profile, str(gpu))) if gpu is not None else None
    if target is not None and gpu is None:
        problems.append("limit_gpu_memory has a target and no gpu")
    if target is not None and profile is not None:
        job = _collect(problems, partial(read_options, str(target), profile.name, options, file))
    if problems:
        raise several(problems, hint=f"for example {_FORM}")
    typed = str(args[0]) if args else ""
    return MarkerLimit(gpu=profile.name if profile else None, bytes=size, typed=typed, job=job, options=options)


def _size(typed: object) -> int:
    if not isinstance(typed, str):
        raise UsageError(f"the limit is a size such as '70 GiB', not {typed!r}")
    try:
        size = parse_size(typed)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not size:
        raise UsageError(f"the limit is a size above 0, not '{typed}'")
    return size


def _collect(problems: list[str], read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except MemplanError as error:
        problems.append(error.what + (f"; {error.hint}" if error.hint else ""))
        return None
