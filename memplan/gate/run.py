"""Runs the jobs of a project side by side, each in a process of its own, and asks the cache first."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from memplan.errors import MemplanError
from memplan.hardware.profile import GpuProfile
from memplan.job.isolate import end_running
from memplan.measure import compose
from memplan.measure.cache import Cache
from memplan.measure.digest_records import HistoryDigest
from memplan.measure.kept_answers import KeptAnswer
from memplan.measure.records import Estimate, RecordedEstimate
from memplan.project.records import ProjectJob

_LOOK_AGAIN = 0.1
"""Seconds: how often it is looked whether processes have ended that should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One job and what it is for."""

    job: ProjectJob
    """The job."""
    profiles: tuple[GpuProfile, ...]
    """Its GPUs; they share one trace."""
    timelines: bool = False
    """Keep the digest of every replay, for a page?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a task: estimates, or an error."""

    task: Task
    """The task."""
    estimates: tuple[Estimate, ...] = ()
    """One for each profile."""
    digests: tuple[HistoryDigest | None, ...] = ()
    """One for each profile; None where it was not asked for or there are no figures."""
    error: MemplanError | None = None
    """Why there are none."""
    cached: bool = False
    """Was nothing run?"""


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(
    tasks: Sequence[Task],
    *,
    at_once: int,
    cache: Cache | None,
    progress: Callable[[str], None] | None = None,
) -> tuple[Answer, ...]:
    """Estimate every task, so many processes at once; a job that fails or hangs has an error for an answer.

    Raises:
        KeyboardInterrupt: As it came; every process has been ended.
    """
    found = [_cached(task, cache) for task in tasks]
    missing = [task for task, answer in zip(tasks, found, strict=True) if answer is None]
    answers = iter(_run_all(missing, at_once, cache, progress) if missing else ())
    return tuple(answer or next(answers) for answer in found)


def _cached(task: Task, cache: Cache | None) -> Answer | None:
    if cache is None:
        return None
    kept = KeptAnswer(cache, task.job.spec, task.profiles, task.job.alloc_conf)
    results = kept.find(timelines=task.timelines)
    return _answer(task, results, cached=True) if results is not None else None


def _answer(task: Task, results: Sequence[RecordedEstimate], *, cached: bool) -> Answer:
    return Answer(
        task=task,
        estimates=tuple(result.estimate for result in results),
        digests=tuple(result.digest for result in results),
        cached=cached,
    )


def _run_all(
    tasks: Sequence[Task], at_once: int, cache: Cache | None, progress: Callable[[str], None] | None
) -> list[Answer]:
    tell = progress or (lambda _: None)
    pool = ThreadPoolExecutor(max_workers=min(at_once, len(tasks)), thread_name_prefix="memplan-gate")
    futures = [pool.submit(_run, task, cache) for task in tasks]
    try:
        for done in range(len(futures)):
            running = [task.job.name for task, future in zip(tasks, futures, strict=True) if not future.done()]
            tell(f"{done} of {len(futures)} done · {', '.join(running[:at_once])}")
            _wait_for(futures, done + 1)
        return [future.result() for future in futures]
    except BaseException:
        # Threads cannot be interrupted, but what they wait for can be ended.
        pool.shutdown(wait=False, cancel_futures=True)
        while not all(future.done() for future in futures):
            end_running()
            time.sleep(_LOOK_AGAIN)
        raise
    finally:
        pool.shutdown()


def _wait_for(futures: Sequence["Future[Answer]"], count: int) -> None:
    """Wait until so many are done, in slices: Ctrl-C is only noticed between two."""
    while sum(future.done() for future in futures) < count:
        wait([future for future in futures if not future.done()], timeout=_LOOK_AGAIN, return_when="FIRST_COMPLETED")


def _run(task: Task, cache: Cache | None) -> Answer:
    job = task.job
    try:
        results = compose.estimate(
            job.spec,
            task.profiles,
            detail="timelines" if task.timelines else "figures",
            alloc_conf=job.alloc_conf,
            timeout=job.timeout,
            cache=cache,
        )
    except MemplanError as error:
        return Answer(task=task, error=error)
    return _answer(task, results, cached=False)
