"""The device peak of a job and nothing else, traced in a child process."""

from collections.abc import Callable
from pathlib import Path

from memplan.errors import EstimateError
from memplan.hardware.profile import GpuProfile
from memplan.job.isolate import run_isolated
from memplan.job.spec import JobSpec
from memplan.measure.cache import Cache
from memplan.units import Bytes


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
