"""One ``[[job]]``: its own keys over the defaults of the file, what wins over the file above both."""

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memplan.errors import MemplanError, in_one_line
from memplan.job.as_loaded import as_loaded
from memplan.job.config_files.read import FileSettings, merge, read_config, with_given
from memplan.job.limits import wrong_values
from memplan.job.options import OPTIONS
from memplan.job.own_batch import with_own_batch
from memplan.job.parallel import ALONE
from memplan.job.program import ParsedWords, decided_by, parse_program
from memplan.job.spec import JobSpec
from memplan.project.keys import JOB, ONCE, POLICY, PROGRAM, REQUIRED, field_of, key_of
from memplan.project.records import Policy, ProjectJob
from memplan.project.values import values_of


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSurroundings:
    """What a job's table stands in."""

    file: Path
    """The project file, as it is found from here."""
    defaults: Mapping[str, Any]
    """Key → value at the top of the file; GPUs by the names of their profiles."""
    winning: Mapping[str, Any]
    """Key → value from the command line or the environment; GPUs by the names of their profiles."""
    gpus_of: Callable[[str], tuple[str, ...]]
    """The names of the profiles that a name or pattern means; raises ``UsageError`` where there is none."""
    has_bfloat16: Callable[[Iterable[str]], bool]
    """Can all of these profiles' cards multiply in bfloat16?"""
    by_trainer: bool = True
    """May transformers' Trainer train a target that it can train?"""


def read_job(content: Mapping[str, Any], around: JobSurroundings, line: int) -> tuple[ProjectJob | None, list[str]]:
    """Read one job from its table; None where anything is wrong, and all that is, each with its key."""
    misplaced = [f"{key}: belongs at the top of the file, it is for all jobs" for key in content if key in ONCE]
    own = {key: value for key, value in content.items() if key not in ONCE}
    program, required, problems = _program(own, around.file.parent)
    values, wrong = values_of(own, JOB, required, folder=around.file.parent)
    problems += wrong
    fields = {field: values[key_of(field)] for field in OPTIONS if key_of(field) in values}
    problems += [*misplaced, *wrong_values(fields, key_of)]
    files, unread = _config(values.get("config", ()))
    spec_values, missing = with_given(files, fields)
    if program is not None:
        problems += [f"{key_of(field)}: {reason}" for field, reason in decided_by(program.target, spec_values)]
        values["target"] = program.target
        spec_values |= {} if program.parallel == ALONE else {"parallel": program.parallel}
    problems += [*unread, *(() if unread else missing)]
    if "gpus" in values and "gpus" not in around.winning:
        values["gpus"], unknown = gpu_names(values["gpus"], around.gpus_of)
        problems += unknown
    shared = {**around.defaults, **values, **around.winning}
    if "gpus" not in shared and "gpus" not in content:
        problems.append("gpus: missing; name them here, or at the top for all jobs")
    if problems:
        return None, problems
    provenance = {
        **dict.fromkeys(OPTIONS, "default"),
        **files.provenance,
        **{field: f"{around.file.name}:{values['name']}.{key_of(field)}" for field in (*fields, "target")},
    }
    run = {field_of(key): shared[key] for key in ("timeout", "alloc-conf") if key in shared}
    spec = with_own_batch(JobSpec(target=values["target"], provenance=provenance, **spec_values))
    return ProjectJob(
        name=values["name"],
        spec=spec if "config" in values else _as_most_run_it(spec, around, shared["gpus"]),
        gpus=shared["gpus"],
        policy=Policy(**{field_of(key): shared[key] for key in POLICY if key in shared}),
        line=line,
        notes=files.notes,
        **run,
    ), []


def _as_most_run_it(spec: JobSpec, around: JobSurroundings, gpus: Iterable[str]) -> JobSpec:
    return as_loaded(spec, has_bfloat16=around.has_bfloat16(gpus), by_trainer=around.by_trainer)


def _program(own: Mapping[str, Any], folder: Path) -> tuple[ParsedWords | None, frozenset[str], list[str]]:
    """The program that a job names instead of a target; which keys it must have, and what is wrong."""
    if not PROGRAM & own.keys():
        return None, REQUIRED, []
    required = REQUIRED - {"target"} | {"script"}
    if "target" in own:
        return None, required, ["script: the job has a target already"]
    script, arguments = own.get("script"), own.get("args", [])
    if (
        not isinstance(script, str)
        or not isinstance(arguments, list)
        or not all(isinstance(each, str) for each in arguments)
    ):
        return None, required, []  # What they must be their readers say.
    try:
        return parse_program([*shlex.split(script), *arguments], folder=folder), required, []
    except MemplanError as error:
        return None, required, [f"script: {in_one_line(error)}"]
    except ValueError as error:  # A quotation mark that is not closed.
        return None, required, [f"script: {error}"]


def _config(paths: tuple[Path, ...]) -> tuple[FileSettings, list[str]]:
    read: list[FileSettings] = []
    problems: list[str] = []
    for path in paths:
        try:
            read.append(read_config(path))
        except MemplanError as error:
            problems.append(f"config: {in_one_line(error)}")
    return merge(read), problems


def gpu_names(names: Iterable[str], gpus_of: Callable[[str], tuple[str, ...]]) -> tuple[tuple[str, ...], list[str]]:
    """The names of the profiles that names mean, each once; and what is wrong."""
    found: list[str] = []
    problems: list[str] = []
    for name in names:
        try:
            found += gpus_of(name)
        except MemplanError as error:
            problems.append(f"gpus: {in_one_line(error)}")
    return tuple(dict.fromkeys(found)), problems
