"""A job of Python keywords, ``batch_size=8, precision="bf16"``, read as a project file's job is."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memplan.errors import several
from memplan.hardware.catalog import load_profile
from memplan.hardware.profile import all_have
from memplan.project.job import JobSurroundings, read_job
from memplan.project.keys import JOB, POLICY, field_of, key_of
from memplan.project.records import ProjectJob

_NO_OPTIONS = {*POLICY, "gpus", "name"}
"""Keys of a project's job that keywords say otherwise, or not at all."""


def read_options(
    target: str, gpu: str, options: Mapping[str, object], file: Path, *, by_trainer: bool = True
) -> ProjectJob:
    """A job as a project file's reader reads it, its keys called as fields of ``JobSpec``.

    Raises:
        UsageError: Something is wrong with it: names every option.
    """
    misplaced = [f"{name}: no option of a job" for name in options if key_of(name) in _NO_OPTIONS]
    around = JobSurroundings(
        file=file,
        defaults={},
        winning={},
        gpus_of=lambda name: (load_profile(name).name,),
        has_bfloat16=lambda names: all_have(map(load_profile, names), "bfloat16"),
        by_trainer=by_trainer,
    )
    content = {key_of(name): _plain(value) for name, value in options.items() if key_of(name) not in _NO_OPTIONS}
    job, problems = read_job({"name": file.stem, "target": target, "gpus": [gpu], **content}, around, 1)
    if job is None or misplaced:
        raise several([*misplaced, *map(_as_keywords, problems)])
    return job


def _as_keywords(problem: str) -> str:
    """What the reader of project files says, with its keys as Python writes them."""
    for key in JOB:
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
