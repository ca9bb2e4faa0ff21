"""One search on a worker: in a process of its own, so that user code can neither end the worker nor stay in it.

A worker may be a thread of a daemon, as Dask's are: there joblib would start no processes. The process of its own may.
"""

import os
import platform
import time
from pathlib import Path

from memplan.errors import EstimateError, MemplanError
from memplan.job.isolate import run_isolated
from memplan.plan.recommend.records import Recommendation
from memplan.plan.sweep.records import SweepRow, SweepTask

PATIENCE = 8
"""Traces of the longest allowed time, one after another, after which a search is given up beyond its own budget."""


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
