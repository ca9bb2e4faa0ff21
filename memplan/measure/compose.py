"""The library call: one job on several devices, in a child process."""

from collections.abc import Callable, Sequence

from memplan.hardware.profile import GpuProfile
from memplan.job.isolate import run_isolated
from memplan.job.reads import Reads
from memplan.job.spec import JobSpec
from memplan.measure.collector import never_collect
from memplan.measure.records import Estimate, RecordedEstimate

DEFAULT_TIMEOUT = 600.0
"""Seconds until a job that hangs is given up."""


def estimate(
    spec: JobSpec,
    profiles: Sequence[GpuProfile],
    *,
    alloc_conf: str = "",
    timeout: float = DEFAULT_TIMEOUT,
    progress: Callable[[str], None] | None = None,
) -> tuple[Estimate, ...]:
    """Estimate one job on several devices. User code runs in a child process of its own.

    Args:
        spec: The job.
        profiles: Devices (``memplan.hardware.catalog.load_profile``).
        alloc_conf: Value of ``PYTORCH_CUDA_ALLOC_CONF``; empty for PyTorch's defaults.
        timeout: Seconds after which the child is killed.
        progress: Told in a few words what happens now.

    Returns:
        One estimate per profile, in order.

    Raises:
        UsageError: The target or an option is wrong.
        EstimateError: User code fails or hangs, or an op has no trustworthy answer.
    """
    return run_isolated(_estimate_in_child, spec, tuple(profiles), alloc_conf, timeout=timeout, progress=progress)


def estimate_and_reads(
    spec: JobSpec,
    profiles: Sequence[GpuProfile],
    *,
    timelines: bool = False,
    alloc_conf: str = "",
    timeout: float = DEFAULT_TIMEOUT,
    progress: Callable[[str], None] | None = None,
) -> tuple[tuple[RecordedEstimate, ...], Reads | None]:
    """Estimate one job on several devices, and say what of the user's the answers rest on.

    Other arguments and errors are those of ``estimate``.

    Args:
        spec: The job.
        profiles: Devices.
        timelines: Keep the digest of every replay?
        alloc_conf: The allocator's options.
        timeout: Seconds.
        progress: Told what happens now.

    Returns:
        One estimate per profile, in order, with its digest if it is to be kept; what was read, None where it changed
        meanwhile.
    """
    return run_isolated(
        _reading_in_child, spec, tuple(profiles), alloc_conf, timelines, timeout=timeout, progress=progress
    )


def record(
    spec: JobSpec,
    profiles: Sequence[GpuProfile],
    *,
    alloc_conf: str = "",
    timeout: float = DEFAULT_TIMEOUT,
    progress: Callable[[str], None] | None = None,
) -> tuple[RecordedEstimate, ...]:
    """Estimate one job on several devices and keep the history of every replay, for the exports.

    Arguments and errors are those of ``estimate``.

    Returns:
        One estimate with its history per profile, in order.
    """
    return run_isolated(_record_in_child, spec, tuple(profiles), alloc_conf, timeout=timeout, progress=progress)


def digested(
    spec: JobSpec,
    profiles: Sequence[GpuProfile],
    *,
    alloc_conf: str = "",
    timeout: float = DEFAULT_TIMEOUT,
    progress: Callable[[str], None] | None = None,
) -> tuple[RecordedEstimate, ...]:
    """Estimate one job on several devices and keep the digest of every replay, but not its history, for a page.

    Arguments and errors are those of ``estimate``.

    Returns:
        One estimate with its digest per profile, in order.
    """
    return run_isolated(_record_in_child, spec, tuple(profiles), alloc_conf, False, timeout=timeout, progress=progress)


def _estimate_in_child(spec: JobSpec, profiles: tuple[GpuProfile, ...], alloc_conf: str = "") -> tuple[Estimate, ...]:
    from memplan.job.child import progress
    from memplan.measure.local import estimate_here

    never_collect()
    return estimate_here(spec, profiles, alloc_conf=alloc_conf, progress=progress)


def _reading_in_child(
    spec: JobSpec, profiles: tuple[GpuProfile, ...], alloc_conf: str, timelines: bool
) -> tuple[tuple[RecordedEstimate, ...], Reads | None]:
    from memplan.job.reads import record_reads

    reads = record_reads()
    if timelines:
        return _record_in_child(spec, profiles, alloc_conf, False), reads()
    estimates = _estimate_in_child(spec, profiles, alloc_conf)
    return tuple(RecordedEstimate(estimate=estimate, history=None) for estimate in estimates), reads()


def _record_in_child(
    spec: JobSpec, profiles: tuple[GpuProfile, ...], alloc_conf: str = "", whole: bool = True
) -> tuple[RecordedEstimate, ...]:
    from memplan.job.child import progress
    from memplan.measure.local import record_here

    never_collect()
    return record_here(spec, profiles, alloc_conf=alloc_conf, whole=whole, progress=progress)
