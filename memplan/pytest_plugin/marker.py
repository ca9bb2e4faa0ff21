"""From a marker's words to a limit. Everything that is wrong is told at once, with what was meant."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from memplan.errors import MemplanError, UsageError, several
from memplan.hardware.catalog import load_profile
from memplan.project.job import JobSurroundings, read_job
from memplan.project.keys import POLICY, field_of, job_keys, key_of
from memplan.project.records import ProjectJob
from memplan.pytest_plugin.records import MarkerLimit
from memplan.units import parse_size

_T = TypeVar("_T")
_FORM = '@pytest.mark.limit_gpu_memory("70 GiB", gpu="h100-80g", target="train.py:model", batch_size=8)'
_NO_OPTIONS = {*POLICY, "gpus", "name"}
"""Keys of a project's job that the marker says otherwise, or not at all."""


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


def read_options(target: str, gpu: str, options: Mapping[str, object], file: Path) -> ProjectJob:
    """A job as a project file's reader reads it, its keys called as fields of ``JobSpec``.

    Raises:
        UsageError: Something is wrong with it: names every option.
    """
    misplaced = [f"{name}: no option of a job" for name in options if key_of(name) in _NO_OPTIONS]
    around = JobSurroundings(file=file, defaults={}, winning={}, gpu_name=lambda name: load_profile(name).name)
    content = {key_of(name): _plain(value) for name, value in options.items() if key_of(name) not in _NO_OPTIONS}
    job, problems = read_job({"name": file.stem, "target": target, "gpus": [gpu], **content}, around, 1)
    if job is None or misplaced:
        raise several([*misplaced, *map(_as_keywords, problems)])
    return job


def _as_keywords(problem: str) -> str:
    """What the reader of project files says, with its keys as Python writes them."""
    for key in job_keys():
        problem = re.sub(rf"(?<![\w-]){key}(?![\w-])", field_of(key), problem)
    return problem


def _plain(value: object) -> Any:
    match value:
        case Path():
            return str(value)
        case tuple():
            return [_plain(each) for each in value]
        case _:
            return value


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
