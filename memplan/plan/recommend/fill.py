"""A batch that fills the device: the largest of the job as given, which every way that the search tries then keeps."""

from collections.abc import Callable
from dataclasses import replace

from memplan.errors import UsageError
from memplan.findings.utilization import Utilization
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.measure.cache import Cache
from memplan.plan.batch.compose import largest_batches
from memplan.plan.recommend.bases import bases
from memplan.plan.recommend.records import Search


def filled(
    spec: JobSpec,
    profile: GpuProfile,
    search: Search,
    utilization: Utilization,
    *,
    timeout: float,
    cache: Cache | None = None,
    progress: Callable[[str], None] | None = None,
) -> JobSpec:
    """Return the job with the largest micro-batch that keeps the target share of a device.

    Raises:
        UsageError: Not even one sample does, so that there is nothing to fill the device with.
        EstimateError: The job cannot be traced.
    """
    # Of several layouts that a search begins with, the first shares most and takes the largest batch.
    given = bases(spec, search)[0].spec
    (answer,) = largest_batches(
        given, (profile,), utilization=utilization, timeout=timeout, cache=cache, progress=progress
    )
    if not answer.value:
        what = f"not even one sample of the job as given keeps the {utilization} target of {profile.name}"
        raise UsageError(what, where="--fill", hint="without it, memplan recommend looks for what makes the job fit")
    return replace(spec, batch_size=answer.value)
