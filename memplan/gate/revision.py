"""Estimates of another revision: its files in a temporary worktree, its project's jobs run there.

The user's checkout is not touched. The environment is the one at hand: both revisions meet the same packages.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import memplan
from memplan.errors import UsageError
from memplan.gate.flow import tasks_of
from memplan.gate.run import run
from memplan.job.isolate import run_isolated
from memplan.measure.cache import Cache
from memplan.measure.records import Estimate
from memplan.project.overrides import Overrides
from memplan.project.read import load_project

_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
"""A worktree is checked out without running the repository's scripts."""
_NEVER = 7 * 24 * 3600.0
"""Seconds: every job has a limit of its own."""
Entries = dict[tuple[str, str], Estimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How the jobs of a project are run."""

    project: Path | None = None
    """Its file; None: found from the working directory upwards."""
    overrides: Overrides
    """What wins over it."""
    at_once: int
    """Processes at most."""
    cache_folder: Path | None = None
    """Where unchanged jobs are found; None: nowhere."""


def estimates_at(revision: str, how: Run, progress: Callable[[str], None] | None = None) -> Entries:
    """Run the jobs of a project at a commit, branch or tag of the repository of the working directory.

    Estimates are by job and GPU; a job that fails has none. Nothing is cached, since the folder is another one each
    time.

    Raises:
        UsageError: There is no such revision, or something is wrong with its project.
    """
    with _worktree(revision) as (top, worktree):
        here = worktree / Path.cwd().resolve().relative_to(top)
        if not here.is_dir():
            raise UsageError(f"this folder does not exist in {revision}")
        project = _moved(how.project.resolve(), top, worktree) if how.project else None
        path = [_moved_entry(entry, top, worktree) for entry in sys.path]
        # Another process: the working directory and the import path are a process's own.
        return run_isolated(_run_there, here, path, project, how, timeout=_NEVER, progress=progress)


def estimates_here(how: Run, progress: Callable[[str], None] | None = None) -> Entries:
    """Run the jobs of the project as it lies in the working directory; estimates by job and GPU, none of a failed job.

    Raises:
        UsageError: Something is wrong with the project.
    """
    project = load_project(how.project, how.overrides)
    cache = Cache(how.cache_folder) if how.cache_folder else None
    answers = run(tasks_of(project), at_once=how.at_once, cache=cache, progress=progress)
    return {(answer.task.job.name, estimate.gpu.name): estimate for answer in answers for estimate in answer.estimates}


def _run_there(folder: Path, path: Sequence[str], project: Path | None, how: Run) -> Entries:
    from memplan.job.child import progress

    os.chdir(folder)
    sys.path[:] = path
    return estimates_here(Run(project=project, overrides=how.overrides, at_once=how.at_once), progress)


@contextmanager
def _worktree(revision: str) -> Iterator[tuple[Path, Path]]:
    """The repository's folder, and one with a revision's files that is gone afterwards."""
    top = Path(_git("rev-parse", "--show-toplevel", failing=revision)).resolve()
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", failing=revision)
    with tempfile.TemporaryDirectory(prefix="memplan-diff-") as scratch:
        worktree = Path(scratch).resolve() / top.name
        try:
            _git(*_NO_HOOKS, "worktree", "add", "--detach", "--force", str(worktree), commit)
            yield top, worktree
        finally:
            for words in (("remove", "--force", str(worktree)), ("prune",)):
                subprocess.run(["git", "worktree", *words], cwd=top, capture_output=True, check=False)  # noqa: S603, S607


def _git(*words: str, failing: str = "") -> str:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)  # noqa: S603, S607
    except OSError as error:
        raise UsageError(f"git cannot be run: {error.strerror}", hint="revisions are read with git") from error
    if done.returncode:
        what = f"there is no revision and no file '{failing}'" if failing else f"git: {done.stderr.strip()}"
        raise UsageError(what, hint="name two saved results, or two revisions of this repository")
    return done.stdout.strip()


def _moved(path: Path, top: Path, worktree: Path) -> Path:
    return worktree / path.relative_to(top) if path.is_relative_to(top) else path


def _moved_entry(entry: str, top: Path, worktree: Path) -> str:
    """An entry of the import path as the revision has it: a package installed as editable must not be the checkout's.

    memplan itself stays the one that is running; what the revision has not (a virtual environment) stays where it is.
    """
    path = Path(entry or ".").resolve()
    moved = _moved(path, top, worktree)
    is_own = Path(memplan.__file__).resolve().parents[1] == path
    return str(moved) if moved.exists() and not is_own else str(path)
