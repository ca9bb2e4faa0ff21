"""A command without its TARGET: inside a project its jobs, elsewhere the one model or program of the folder."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from memplan.cli import console, options
from memplan.errors import UsageError
from memplan.job.options import OPTIONS
from memplan.job.program import trains
from memplan.project.find import find_project, read_table
from memplan.project.search import defines_class, defines_factory, is_beside

COMMANDS = ("estimate", "checkpoint-plan", "reuse-plan", "graph", "recommend", "batch", "simulate")
"""Those that answer for a job."""
ONE_GPU = ("checkpoint-plan", "reuse-plan", "graph", "recommend", "simulate")
"""Those that answer for one GPU at a time."""


def lacks_target(error: BaseException, arguments: Sequence[str]) -> bool:
    """Did a command end because nobody said what to look at?"""
    missing = type(error).__name__ == "MissingParameter" and getattr(error, "param", None) is not None
    return missing and error.param.name == "target" and arguments[0] in COMMANDS  # type: ignore[attr-defined]


def completed(arguments: Sequence[str], folder: Path = Path()) -> Iterator[list[str]]:
    """Yield the arguments of each command that is meant, and say which.

    Raises:
        UsageError: There is no project, and not exactly one candidate.
    """
    command, *typed = arguments
    for name, words in _meant(folder, command, with_gpu="--gpu" not in [word.partition("=")[0] for word in typed]):
        console.tell(f"note: no TARGET was given: {name}\n      memplan {' '.join([command, *words, *typed])}\n")
        # What is typed comes last, and wins.
        yield [command, *words, *typed]


def _meant(folder: Path, command: str, *, with_gpu: bool) -> Iterator[tuple[str, list[str]]]:
    try:
        file = find_project(folder)
    except UsageError:
        file = None
    jobs = read_table(file)[0] if file is not None else {}
    if file is not None and jobs.get("job"):
        if not all(isinstance(job, dict) for job in jobs["job"]):
            raise UsageError("job: expected tables, each under a header [[job]]", where=str(file))
        for job in jobs["job"]:
            words = _words(job, jobs, file.parent, command, with_gpu=with_gpu)
            yield f"job '{job.get('name', '?')}' of {file}", words
        return
    yield _only(folder, command, "" if file is None else f"; {file} has no job")


def _words(
    job: Mapping[str, Any], around: Mapping[str, Any], folder: Path, command: str, *, with_gpu: bool
) -> list[str]:
    """A job of a project file as it would be typed."""
    if "target" not in job:
        raise UsageError(f"job '{job.get('name', '?')}' names no target that {command} takes")
    target = str(job["target"])
    beside = (folder / target.partition(":")[0]).is_file()
    gpus = list(job.get("gpus", around.get("gpus", [])))[: 1 if command in ONE_GPU else None] if with_gpu else []
    words = [str(folder / target) if beside else target, *(word for gpu in gpus for word in ("--gpu", gpu))]
    for option in OPTIONS.values():
        if option.called in job:
            words += options.typed(option.name, job[option.called])
    return words


def _only(folder: Path, command: str, project: str) -> tuple[str, list[str]]:
    """The one candidate of a folder; what is known of its project is told, too."""
    files = [file.name for file in sorted(folder.glob("*.py")) if _is_candidate(file)]
    if len(files) == 1:
        return f"{files[0]} is the only model or program in this folder{project}", files
    if files:
        what = f"{command} needs a TARGET: this folder has {', '.join(files)}{project}"
        raise UsageError(what, hint=f"memplan {command} {files[0]}")
    what = f"{command} needs a TARGET: no Python file of this folder defines a model or trains one{project}"
    raise UsageError(what, hint="name a file, or preset:gpt2 ('memplan presets' lists more)")


def _is_candidate(file: Path) -> bool:
    """Does a file define a model, or train one? It is read, not run."""
    return not is_beside(file) and (defines_factory(file) or defines_class(file) or trains(file))
