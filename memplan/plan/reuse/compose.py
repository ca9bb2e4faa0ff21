"""The library call: buffers of a file, a snapshot or a job, placed in one arena."""

import time
from collections.abc import Callable
from pathlib import Path

from memplan.errors import MemplanError
from memplan.hardware.profile import GpuProfile
from memplan.job.isolate import run_isolated
from memplan.job.spec import JobSpec
from memplan.job.target import format_target
from memplan.measure.cache import Cache
from memplan.plan.reuse.answer_records import Gathered, ReuseAnswer, SourceKind
from memplan.versions import installed

DEFAULT_TIME_LIMIT = 10.0
"""Seconds for the solvers."""
DEFAULT_TIMEOUT = 600.0
"""Seconds until a job that hangs is given up."""

Tell = Callable[[str], None]
"""Told in a few words what happens now."""


def plan_reuse(
    source: JobSpec | Path,
    profile: GpuProfile | None = None,
    *,
    capacity: int | None = None,
    method: str = "auto",
    time_limit: float = DEFAULT_TIME_LIMIT,
    timeout: float = DEFAULT_TIMEOUT,
    cache: Cache | None = None,
    progress: Tell | None = None,
) -> ReuseAnswer:
    """Place buffers whose lifespans are known in an arena as small as possible.

    Args:
        source: A job, whose user code runs in a child process; or a file: buffers as CSV, or a CUDA memory snapshot
            (``.pickle``, ``.pkl``).
        profile: The device that a job is traced for; files need none.
        capacity: Bytes that the arena may have; the search ends with the first placement within it. None: as few as
            possible are wanted.
        method: Who places them, of ``memplan.plan.reuse.methods.NAMES``; ``all``: each, side by side.
        time_limit: Seconds for each method.
        timeout: Seconds after which the child is killed.
        cache: Where traces of unchanged jobs are found and kept; None: nowhere.
        progress: Told in a few words what happens now.

    Returns:
        The answer; ``result`` says how it ended. A capacity that is too small is an answer, not an error.

    Raises:
        UsageError: The file, the target or an option is wrong, or the method cannot take so many buffers.
        EstimateError: User code fails or hangs, or an op has no trustworthy answer.
    """
    started = time.perf_counter()
    if isinstance(source, Path):
        kind, gathered = _read(source, capacity, progress)
    else:
        if profile is None:
            raise MemplanError("a job is traced for a device; none was given")
        kind, folder = "step", cache.folder if cache is not None else None
        gathered = run_isolated(_in_child, source, profile, capacity, folder, timeout=timeout, progress=progress)
    read_seconds = time.perf_counter() - started
    name = str(source) if isinstance(source, Path) else format_target(source.target)
    return placed(
        name, kind, gathered, method=method, time_limit=time_limit, read_seconds=read_seconds, progress=progress
    )


def placed(
    target: str,
    kind: SourceKind,
    gathered: Gathered,
    *,
    method: str = "auto",
    time_limit: float = DEFAULT_TIME_LIMIT,
    read_seconds: float = 0.0,
    progress: Tell | None = None,
) -> ReuseAnswer:
    """Place what was gathered."""
    from memplan.plan.reuse.compiled import is_ready
    from memplan.plan.reuse.methods import place

    if progress is not None:
        progress("placing" if is_ready() else "placing, and compiling what places: once after an installation")
    started = time.perf_counter()
    result, methods = place(gathered.problem, method=method, time_limit=time_limit)
    return ReuseAnswer(
        target=target,
        kind=kind,
        problem=gathered.problem,
        result=result,
        surroundings=gathered.surroundings,
        read_seconds=read_seconds,
        solve_seconds=time.perf_counter() - started,
        memplan_version=installed("memplan"),
        methods=methods,
    )


def is_file(target: str) -> bool:
    """Does a target name a file of buffers or a snapshot, rather than a model?"""
    return target.endswith((".csv", ".pickle", ".pkl"))


def _read(source: Path, capacity: int | None, progress: Tell | None) -> tuple[SourceKind, Gathered]:
    if progress is not None:
        progress("reading")
    if source.suffix == ".csv":
        from memplan.plan.reuse.csv_file import read_problem

        return "file", Gathered(problem=read_problem(source, capacity=capacity), surroundings=None)
    from memplan.plan.reuse.from_snapshot import gather_snapshot

    return "snapshot", gather_snapshot(source, capacity)


def _in_child(spec: JobSpec, profile: GpuProfile, capacity: int | None, folder: Path | None) -> Gathered:
    from memplan.job.child import progress
    from memplan.measure.kept_traces import kept_traces
    from memplan.plan.reuse.from_job import gather_job

    return gather_job(spec, profile, capacity, kept=kept_traces(folder), progress=progress)
