"""What of a device changes the step of a job: jobs on devices of equal traits share a trace."""

from dataclasses import replace

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.tracing.records import DeviceTraits
from memplan.tracing.sharding.zero.settings import is_zero


def traits_of(spec: JobSpec, profile: GpuProfile) -> DeviceTraits:
    """Return what of a device changes the step of a job.

    DeepSpeed looks how much memory is free, and flattens weights on the host where it is too little.
    """
    traits = DeviceTraits.of(profile)
    if is_zero(spec.parallel) and profile.total_bytes:
        return replace(traits, total_bytes=profile.total_bytes)
    return traits
