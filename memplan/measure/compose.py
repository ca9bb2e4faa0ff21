"""The library calls: one job on several devices, found in the cache or measured in a child; its device peak alone."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from memplan.errors import EstimateError
from memplan.hardware.profile import GpuProfile
from memplan.job.isolate import run_isolated
from memplan.job.reads import Reads
from memplan.job.spec import JobSpec
from memplan.measure.cache import Cache
from memplan.measure.collector import never_collect
from memplan.measure.kept_answers import KeptAnswer
from memplan.measure.records import RecordedEstimate
from memplan.measure.savings import Switch
from memplan.units import Bytes

DEFAULT_TIMEOUT = 600.0
"""Seconds until a job that hangs is given up."""

Detail = Literal["figures", "timelines", "histories"]
"""What is kept of each replay: nothing, its digest for a page, or its whole history, too."""


def estimate(
    spec: JobSpec,
    profiles: Sequence[GpuProfile],
    *,
    detail: Detail = "figures",
    switches: Sequence[Switch] = (),
    alloc_conf: str = "",
    timeout: float = DEFAULT_TIMEOUT,
    cache: Cache | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[RecordedEstimate, ...]:
    """Estimate one job on several devices. User code runs in a child process of its own, if it must run at all.

    Args:
        spec: The job.
        profiles: Devices (``memplan.hardware.catalog.load_profile``).
        detail: What is kept of each replay.
        switches: Optimizations of which it is told what each saves; each costs a trace.
        alloc_conf: Value of ``PYTORCH_CUDA_ALLOC_CONF``; empty for PyTorch's defaults.
        timeout: Seconds after which the child is killed.
        cache: Where answers and traces of unchanged jobs are found and kept; None: nowhere.
        progress: Told in a few words what happens now.

    Returns:
        One estimate per profile, in order.

    Raises:
        UsageError: The target or an option is wrong.
        EstimateError: User code fails or hangs, or an op has no trustworthy answer.
    """
    answer = KeptAnswer(cache, spec, profiles, alloc_conf, switches) if cache is not None else None
    if answer is not None and detail != "histories":
        found = answer.find(timelines=detail == "timelines")
        if found is not None:
            if progress is not None:
                progress("nothing has changed since it was last measured")
            return found
    results, reads = estimate_and_reads(
        spec,
        profiles,
        detail=detail,
        switches=switches,
        alloc_conf=alloc_conf,
        timeout=timeout,
        folder=cache.folder if cache is not None else None,
        progress=progress,
    )
    if answer is not None and reads is not None:
        answer.keep(results, reads)
    return results


def estimate_and_reads(
    spec: JobSpec,
    profiles: Sequence[GpuProfile],
    *,
    detail: Detail,
    switches: Sequence[Switch] = (),
    alloc_conf: str,
    timeout: float,
    folder: Path | None,
    progress: Callable[[str], None] | None,
) -> tuple[tuple[RecordedEstimate, ...], Reads | None]:
    """Estimate in a child process, and say what of the user's the answers rest on.

    Other arguments and errors are those of ``estimate``.

    Without a folder for traces nothing that is read is recorded; what was read is None where it changed meanwhile.
    """
    asked = (spec, tuple(profiles), tuple(switches))
    return run_isolated(_estimate_in_child, asked, alloc_conf, detail, folder, timeout=timeout, progress=progress)


def _estimate_in_child(
    asked: tuple[JobSpec, tuple[GpuProfile, ...], tuple[Switch, ...]],
    alloc_conf: str,
    detail: Detail,
    folder: Path | None,
) -> tuple[tuple[RecordedEstimate, ...], Reads | None]:
    from memplan.job.child import progress
    from memplan.measure.kept_traces import kept_traces
    from memplan.measure.local import estimate_here, record_here

    never_collect()
    spec, profiles, switches = asked
    kept = kept_traces(folder)
    if detail == "figures":
        estimates = estimate_here(
            spec, profiles, switches=switches, alloc_conf=alloc_conf, kept=kept, progress=progress
        )
        results = tuple(RecordedEstimate(estimate=estimate, history=None) for estimate in estimates)
    else:
        results = record_here(
            spec,
            profiles,
            switches=switches,
            alloc_conf=alloc_conf,
            whole=detail == "histories",
            kept=kept,
            progress=progress,
        )
    return results, kept.reads() if kept is not None else None


def device_peak(
    spec: JobSpec,
    profile: GpuProfile,
    *,
    timeout: float,
    cache: Cache | None = None,
    progress: Callable[[str], None] | None = None,
) -> Bytes:
    """Trace a job and return its device peak.

    Raises:
        UsageError: The target or an option is wrong.
        EstimateError: User code fails or hangs, or an op has no trustworthy answer.
    """
    folder = cache.folder if cache is not None else None
    return run_isolated(_in_child, spec, profile, folder, timeout=timeout, progress=progress)


def _in_child(spec: JobSpec, profile: GpuProfile, folder: Path | None) -> Bytes:
    from memplan.job.child import progress
    from memplan.measure.kept_traces import kept_traces
    from memplan.measure.local import estimate_here
    from memplan.measure.records import Verdict

    [answer] = estimate_here(spec, [profile], advice=False, kept=kept_traces(folder), progress=progress)
    if answer.verdict is Verdict.UNKNOWN:
        raise EstimateError("an op of it has no trustworthy answer")
    return Bytes(answer.peak.device_bytes)
