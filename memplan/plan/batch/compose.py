"""The library call: the largest batch that fits a device, found in a child process."""

from collections.abc import Callable, Sequence
from pathlib import Path

from memplan.findings.utilization import Utilization
from memplan.hardware.profile import GpuProfile
from memplan.job.isolate import run_isolated
from memplan.job.spec import JobSpec
from memplan.measure.cache import Cache
from memplan.plan.batch.records import BatchAnswer, Variable

DEFAULT_TIMEOUT = 900.0
"""Seconds until a job that hangs is given up: a search takes several traces."""


def largest_batches(
    spec: JobSpec,
    profiles: Sequence[GpuProfile],
    *,
    variable: Variable = "batch_size",
    utilization: Utilization | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    cache: Cache | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[BatchAnswer, ...]:
    """Find the largest batch size (or sequence length) that fits each device. User code runs in a child process.

    Devices whose steps are the same share traces.

    Args:
        spec: The job; its own value is where the search begins.
        profiles: The devices.
        variable: What is enlarged.
        utilization: Room to leave (``memplan.findings.utilization``); None leaves what the interval needs.
        timeout: Seconds after which the child is killed.
        cache: Where traces of unchanged jobs are found and kept; None: nowhere.
        progress: Told in a few words what happens now.

    Returns:
        The answers in the order of the devices; ``ended`` says how each is known. That nothing fits is an answer, too.

    Raises:
        UsageError: A device has no limit, or the target or an option is wrong.
        EstimateError: User code fails or hangs, or an op has no trustworthy answer.
    """
    folder = cache.folder if cache is not None else None
    return run_isolated(
        _in_child, spec, tuple(profiles), variable, utilization, folder, timeout=timeout, progress=progress
    )


def _in_child(
    spec: JobSpec,
    profiles: tuple[GpuProfile, ...],
    variable: Variable,
    utilization: Utilization | None,
    folder: Path | None,
) -> tuple[BatchAnswer, ...]:
    from memplan.job.child import progress
    from memplan.measure.kept_traces import kept_traces
    from memplan.measure.measurer import measuring
    from memplan.plan.batch.flow import largest_here

    with measuring(kept=kept_traces(folder), progress=progress) as measurer:
        return tuple(
            largest_here(spec, profile, measurer, variable=variable, utilization=utilization) for profile in profiles
        )
