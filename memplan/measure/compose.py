"""The library calls: one job on several devices, found in the cache or measured in a child; its device peak alone."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

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

if TYPE_CHECKING:
    from memplan.measure.kept_traces import KeptTraces
    from memplan.measure.measurer import Tell

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
    envelope: bool = False,
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
        envelope: Is the peak told with every way of routing tokens to experts? Where routers choose, two more traces.
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
    answer = KeptAnswer(cache, spec, profiles, alloc_conf, (switches, envelope)) if cache is not None else None
    if answer is not None and detail != "histories":
        found = answer.find(timelines=detail == "timelines")
        if found is not None:
            if progress is not None:
                progress("nothing has changed since it was last measured")
            return found
    asked = Asked(spec, tuple(profiles), tuple(switches), envelope, alloc_conf, detail)
    made = _of_kept_traces(asked, cache, progress) if cache is not None else None
    folder = cache.folder if cache is not None else None
    results, reads = made or estimate_and_reads(asked, folder=folder, timeout=timeout, progress=progress)
    if answer is not None and reads is not None:
        answer.keep(results, reads)
    return results


class Asked(NamedTuple):
    """What is estimated."""

    spec: JobSpec
    profiles: tuple[GpuProfile, ...]
    switches: tuple[Switch, ...]
    envelope: bool
    alloc_conf: str
    detail: Detail


Answered = tuple[tuple[RecordedEstimate, ...], Reads | None]
"""Estimates, and what of the user's they rest on; None where a file has changed meanwhile."""


def _of_kept_traces(asked: Asked, cache: Cache, progress: "Tell | None") -> Answered | None:
    """Estimate in this process, where every trace that it takes is kept: no user code runs, and torch is not needed."""
    from memplan.measure.kept_traces import KeptAlone, NotKeptError
    from memplan.measure.traits import traits_of

    kept = KeptAlone(cache)
    if not all(kept.has(asked.spec, traits_of(asked.spec, profile)) for profile in asked.profiles):
        return None
    try:
        return _estimate(asked, kept, progress or (lambda _: None))
    except NotKeptError:
        return None


def estimate_and_reads(asked: Asked, *, folder: Path | None, timeout: float, progress: "Tell | None") -> Answered:
    """Estimate in a child process, and say what of the user's the answers rest on.

    Arguments and errors are those of ``estimate``. Without a folder for traces nothing that is read is recorded.
    """
    return run_isolated(_estimate_in_child, asked, folder, timeout=timeout, progress=progress)


def _estimate_in_child(asked: Asked, folder: Path | None) -> Answered:
    from memplan.job.child import progress
    from memplan.measure.kept_traces import kept_traces

    never_collect()
    return _estimate(asked, kept_traces(folder), progress)


def _estimate(asked: Asked, kept: "KeptTraces | None", progress: "Tell") -> Answered:
    from memplan.measure.local import estimate_here, record_here

    spec, profiles, switches, envelope, alloc_conf, detail = asked
    if detail == "figures":
        estimates = estimate_here(
            spec,
            profiles,
            switches=switches,
            envelope=envelope,
            alloc_conf=alloc_conf,
            kept=kept,
            progress=progress,
        )
        results = tuple(RecordedEstimate(estimate=estimate, history=None) for estimate in estimates)
    else:
        results = record_here(
            spec,
            profiles,
            switches=switches,
            envelope=envelope,
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
