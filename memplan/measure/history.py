"""The history behind an estimate: its replay once more, every event written down."""

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.measure.measured import Measured
from memplan.replay.cpu import NoCaching
from memplan.snapshot.recording import DeviceRates, record, repetitions_to_peak
from memplan.snapshot.records import Snapshot


def history(spec: JobSpec, profile: GpuProfile, measured: Measured) -> Snapshot:
    """Record what was measured.

    Args:
        spec: The job; its precision decides how fast the device computes, for the history's clock.
        profile: The device.
        measured: The trace on it.

    Returns:
        A history whose peaks are the measured ones.
    """
    memory = measured.memory
    # Only a replay under the device's limit can have given its cache back.
    limit = profile.usable_bytes - profile.context_bytes if memory.retries else None
    return record(
        measured.lifetimes,
        measured.stream,
        policy=NoCaching() if profile.kind == "cpu" else measured.policy,
        repetitions=repetitions_to_peak(measured.stream, memory),
        limit_bytes=limit,
        device_bytes=profile.total_bytes or None,
        rates=_rates(spec, profile),
    )


def _rates(spec: JobSpec, profile: GpuProfile) -> DeviceRates | None:
    flops = profile.peak_flops.get(spec.precision.removesuffix("-mixed"))
    if not flops or not profile.memory_bandwidth:
        return None
    return DeviceRates(flops=flops, bandwidth=profile.memory_bandwidth)
