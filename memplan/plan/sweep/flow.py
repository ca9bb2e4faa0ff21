"""The sweep: tasks out, rows back, whatever happens to a job or to the cluster.

A search runs in a process of its own, so that user code can neither end the worker nor stay in it; the worker may be a
thread of a daemon, as Dask's are, where joblib would start no processes.
"""

import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from memplan.errors import EstimateError, MemplanError
from memplan.hardware.catalog import load_profile
from memplan.job.isolate import run_isolated
from memplan.plan.recommend.records import Recommendation
from memplan.plan.sweep.backends import carried_by
from memplan.plan.sweep.records import PROCESSES, Sweep, SweepRequest, SweepRow, SweepTask
from memplan.project.records import Project

T = TypeVar("T")
R = TypeVar("R")
PATIENCE = 8
"""Traces of the longest allowed time, one after another, after which a search is given up beyond its own budget."""


def sweep(project: Project, asked: SweepRequest, progress: Callable[[str], None] | None = None) -> Sweep:
    """Recommend for every job of a project on each of its GPUs.

    A row for each; that a job has no answer is one, too.

    Raises:
        UsageError: There is no such cluster.
    """
    started = time.perf_counter()
    tasks = list(_tasks(project, asked))
    at_once = max(1, (os.cpu_count() or 1) // (asked.search.processes or PROCESSES))
    with carried_by(asked.backend, asked.address, min(at_once, len(tasks))):
        # Dask's backend tells nothing of a task that is lost with its worker (joblib 1.6): waiting has to end.
        found = run_all(run_task, tasks, timeout=sum(map(limit_of, tasks)))
        rows = _collect(tasks, found, progress or (lambda _: None))
    return Sweep(
        project=project.file,
        backend=asked.backend,
        rows=rows,
        notes=tuple(_notes(project)),
        seconds=time.perf_counter() - started,
    )


def _tasks(project: Project, asked: SweepRequest) -> Iterator[SweepTask]:
    for job in project.jobs:
        for name in job.gpus:
            gpus = asked.gpus or job.spec.parallel.ranks
            processes = asked.search.processes or PROCESSES
            yield SweepTask(
                job=job.name,
                spec=job.spec,
                profile=load_profile(name, profile_dirs=project.profile_dirs),
                search=replace(asked.search, gpus=gpus, processes=processes),
                timeout=job.timeout,
                folder=Path.cwd(),
            )


def run_all(function: Callable[[T], R], tasks: Sequence[T], *, timeout: float) -> Iterator[R]:
    """Results in whatever order they come, where the backend tells of each; else all of them at the end.

    The function is at module level, and there is at least one task.
    """
    from joblib import Parallel, delayed
    from joblib.parallel import get_active_backend

    backend, _ = get_active_backend()
    # Ray's tells of none.
    order = "generator_unordered" if backend.supports_return_generator else "list"
    run = Parallel(batch_size=1, pre_dispatch="all", return_as=order, timeout=timeout)
    yield from run(delayed(function)(task) for task in tasks)


def _collect(
    tasks: Sequence[SweepTask], found: Iterable[SweepRow], progress: Callable[[str], None]
) -> tuple[SweepRow, ...]:
    """Rows in the order of their tasks; where the cluster breaks down, the rest says so."""
    rows: dict[tuple[str, str], SweepRow] = {}
    broken = ""
    progress(f"0 of {len(tasks)} searches")
    try:
        for row in found:
            rows[row.job, row.gpu] = row
            progress(f"{len(rows)} of {len(tasks)} searches: {row.job} on {row.gpu}")
    except (TimeoutError, multiprocessing.TimeoutError):
        broken = "no result came: its worker is gone, or never began"
    except Exception as error:  # noqa: BLE001 - whatever a cluster's own library raises: what has come is kept.
        broken = f"the backend failed: {type(error).__name__}: {error}"
    return tuple(rows.get((task.job, task.profile.name)) or _lost(task, broken) for task in tasks)


def _lost(task: SweepTask, error: str) -> SweepRow:
    return SweepRow(job=task.job, gpu=task.profile.name, gpus=task.search.gpus, answer=None, error=error)


def _notes(project: Project) -> Iterator[str]:
    yield from dict.fromkeys(f"{job.name}: {note}" for job in project.jobs for note in job.notes)
    for job in project.jobs:
        if job.alloc_conf:
            yield f"{job.name}: alloc-conf is not looked at, the search replays PyTorch's own settings"


def limit_of(task: SweepTask) -> float:
    """Seconds after which a search is given up."""
    search = task.search
    searched = search.budget_seconds if search.budget_traces is None else search.budget_traces * task.timeout
    return searched + PATIENCE * task.timeout


def run_task(task: SweepTask) -> SweepRow:
    """Search for one job on one GPU; that there is no answer is a row, too."""
    started = time.perf_counter()
    answer, error = _answer(task)
    return SweepRow(
        job=task.job,
        gpu=task.profile.name,
        gpus=task.search.gpus,
        answer=answer,
        error=error,
        seconds=time.perf_counter() - started,
    )


def _answer(task: SweepTask) -> tuple[Recommendation | None, str]:
    try:
        return run_isolated(_search, task, timeout=limit_of(task)), ""
    except MemplanError as error:
        where = f" ({error.where})" if error.where else ""
        return None, f"{error.what}{where}" + (f"; {error.hint}" if error.hint else "")


def _search(task: SweepTask) -> Recommendation:
    _enter(task.folder)
    from memplan.plan.recommend.compose import recommend

    return recommend(task.spec, task.profile, task.search, timeout=task.timeout)


def _enter(folder: Path) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        what = f"the worker on {platform.node()} has no folder '{folder}'"
        raise EstimateError(what, hint="put the project where all machines see it at one place") from error
