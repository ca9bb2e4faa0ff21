"""From a project file to its jobs: every key checked, everything wrong told at once.

command line ──► environment ──► job ──► top of the file ──► default      the first that says something wins
"""

import difflib
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from memplan.errors import several
from memplan.hardware.catalog import load_profiles
from memplan.hardware.profile import all_have
from memplan.project.find import find_project, read_table
from memplan.project.job import JobSurroundings, gpu_names, read_job
from memplan.project.keys import JOB, ONCE, REQUIRED, TOP
from memplan.project.overrides import Overrides, from_environment, typed
from memplan.project.records import Project, ProjectJob
from memplan.project.values import values_of

_NOTHING = Overrides()


def load_project(
    path: Path | None, overrides: Overrides = _NOTHING, *, environment: Mapping[str, str] | None = None
) -> Project:
    """Read a project file.

    Args:
        path: The file; None: found from the working directory upwards.
        overrides: What the command line says, which wins.
        environment: Variables, which win over the file; None: those of this process.

    Returns:
        Its jobs, with every path as it is found from the working directory.

    Raises:
        UsageError: There is no such file, or something is wrong in it: names every problem with its place.
    """
    file = path if path is not None else find_project(Path())
    table, text = read_table(file)
    outside = from_environment(TOP, os.environ if environment is None else environment) | typed(overrides)
    winning, problems = _winning(outside)
    top, wrong = _top(table, file)
    problems += wrong
    folders, missing = _folders(file, top, winning)
    problems += missing
    gpus_of = functools.cache(lambda name: tuple(gpu.name for gpu in load_profiles([name], profile_dirs=folders)))
    problems += _name_gpus(winning, outside["gpus"][0] if "gpus" in winning else "", gpus_of)
    problems += () if "gpus" in winning else _name_gpus(top, f"{file}: gpus", gpus_of)
    around = JobSurroundings(
        file=file,
        defaults={key: value for key, value in top.items() if key not in ONCE},
        winning={key: value for key, value in winning.items() if key not in ONCE},
        gpus_of=gpus_of,
        has_bfloat16=lambda names: all_have(load_profiles([*names], profile_dirs=folders), "bfloat16"),
    )
    jobs, wrong = _jobs(table.get("job"), around, text)
    problems += [*wrong, *_unwanted(overrides.jobs, table.get("job"), file)]
    if problems:
        raise several(problems)
    wanted = [job for job in jobs if not overrides.jobs or job.name in overrides.jobs]
    return Project(file=file, jobs=tuple(wanted), baseline=_baseline(file, top, winning), profile_dirs=folders)


def _winning(outside: Mapping[str, tuple[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Key → value of all that wins over the file; and what is wrong with it, each with its option or variable."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for key, (called, content) in outside.items():
        found, wrong = values_of({key: content}, TOP)
        values |= found
        problems += [f"{called}{problem.removeprefix(key)}" for problem in wrong]
    return values, problems


def _top(table: Mapping[str, Any], file: Path) -> tuple[dict[str, Any], list[str]]:
    of_jobs = set(JOB) - set(TOP)
    own = {key: value for key, value in table.items() if key != "job" and key not in of_jobs}
    values, problems = values_of(own, TOP)
    problems += [f"{key}: belongs in a [[job]]" for key in table if key in of_jobs]
    return values, [f"{file}: {problem}" for problem in problems]


def _folders(file: Path, top: Mapping[str, Any], winning: Mapping[str, Any]) -> tuple[tuple[Path, ...], list[str]]:
    """Folders of profiles that there are; and a sentence for each that there is not."""
    typed_folders = winning.get("profile-dirs")
    named = [Path(name) for name in typed_folders or ()]
    if typed_folders is None:
        named = [file.parent / name for name in top.get("profile-dirs", ())]
    problems = [f"{file}: profile-dirs: there is no folder '{path}'" for path in named if not path.is_dir()]
    return tuple(path for path in named if path.is_dir()), problems


def _name_gpus(values: dict[str, Any], place: str, gpus_of: Callable[[str], tuple[str, ...]]) -> list[str]:
    """Put the names of profiles in the place of the names that mean them; what is wrong is returned."""
    if "gpus" not in values:
        return []
    values["gpus"], problems = gpu_names(values["gpus"], gpus_of)
    return [f"{place}{problem.removeprefix('gpus')}" for problem in problems]


def _baseline(file: Path, top: Mapping[str, Any], winning: Mapping[str, Any]) -> Path | None:
    if "baseline" in winning:
        return Path(winning["baseline"])
    return file.parent / top["baseline"] if "baseline" in top else None


def _jobs(tables: object, around: JobSurroundings, text: str) -> tuple[list[ProjectJob], list[str]]:
    header = "[[tool.memplan.job]]" if around.file.name == "pyproject.toml" else "[[job]]"
    if not tables:
        return [], [f"{around.file}: no job; add a {header} with {' and '.join(sorted(REQUIRED))}"]
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        return [], [f"{around.file}: job: expected tables, each under a header {header}"]
    jobs: list[ProjectJob] = []
    problems: list[str] = []
    for number, (table, line) in enumerate(zip(tables, job_lines(text, len(tables)), strict=True), start=1):
        job, wrong = read_job(table, around, line)
        jobs += [job] if job is not None else []
        problems += [f"{around.file}: {_called(number, table)}: {problem}" for problem in wrong]
    return jobs, [*problems, *_repeated(tables, around.file)]


def _called(number: int, table: Mapping[str, Any]) -> str:
    name = table.get("name")
    return f"job {number} ({name})" if isinstance(name, str) and name and name.isprintable() else f"job {number}"


def _repeated(tables: Sequence[Mapping[str, Any]], file: Path) -> Iterator[str]:
    numbers: dict[str, list[int]] = {}
    for number, table in enumerate(tables, start=1):
        if isinstance(name := table.get("name"), str):
            numbers.setdefault(name, []).append(number)
    for name, found in numbers.items():
        if len(found) > 1:
            yield f"{file}: jobs {' and '.join(map(str, found))} have one name, '{name}'; give each its own"


def _unwanted(wanted: Sequence[str], tables: object, file: Path) -> Iterator[str]:
    """A sentence for each job that was asked for and is not there."""
    tables = tables if isinstance(tables, list) else []
    known = [table["name"] for table in tables if isinstance(table, dict) and isinstance(table.get("name"), str)]
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1) or dict.fromkeys(known)
            yield f"{file}: there is no job '{name}'" + (f"; there is {', '.join(near)}" if near else "")


_NO_HEADERS = re.compile(
    r"#[^\n]*"
    r'|"{3}(?:\\.|[^\\])*?"{3}'
    r"|'{3}.*?'{3}"
    r'|"(?:\\.|[^\\"\n])*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
"""Comments and strings, in all of which a header would be none and may stand what looks like the others."""
_HEADER = re.compile(r"\s*\[\[\s*(?:tool\s*\.\s*memplan\s*\.\s*)?job\s*\]\]")


def job_lines(text: str, jobs: int) -> tuple[int, ...]:
    """The line of each ``[[job]]`` or ``[[tool.memplan.job]]``, from 1.

    Where there are not as many headers as jobs, these are written otherwise, and every line is 1.
    """
    found = tuple(_headers(_NO_HEADERS.sub(lambda part: "\n" * part[0].count("\n"), text)))
    return found if len(found) == jobs else (1,) * jobs


def _headers(text: str) -> Iterator[int]:
    for number, line in enumerate(text.split("\n"), start=1):
        if _HEADER.match(line):
            yield number
