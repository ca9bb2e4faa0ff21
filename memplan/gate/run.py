"""Runs the jobs of a project side by side, each in a process of its own, and asks the cache first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from memplan.errors import MemplanError
from memplan.hardware.profile import GpuProfile
from memplan.job.side_by_side import side_by_side
from memplan.measure import compose
from memplan.measure.cache import Cache
from memplan.measure.digest_records import HistoryDigest
from memplan.measure.kept_answers import KeptAnswer
from memplan.measure.records import Estimate, RecordedEstimate
from memplan.project.records import ProjectJob


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

    def told(running: Sequence[Task]) -> None:
        if progress is not None:
            names = ", ".join(task.job.name for task in running[:at_once])
            progress(f"{len(missing) - len(running)} of {len(missing)} done · {names}")

    answers = iter(side_by_side(partial(_run, cache=cache), missing, at_once=at_once, told=told))
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
