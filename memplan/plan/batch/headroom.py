"""The share of a device that a plan may take."""

from memplan.findings.utilization import THRESHOLDS, Utilization
from memplan.hardware.profile import GpuProfile
from memplan.measure.records import Estimate, Verdict


def limit_of(profile: GpuProfile, utilization: Utilization | None) -> int:
    """Bytes of the device that a plan may take; 0 where the device has no limit."""
    return int(profile.usable_bytes * (THRESHOLDS[utilization].target if utilization else 1.0))


def is_within(estimate: Estimate, utilization: Utilization | None) -> bool:
    """Does an estimate leave the room that was asked for?

    Without a preset the upper end of its interval must fit; with one, the peak itself must keep below its target.
    """
    if utilization is None or not estimate.gpu.usable_bytes:
        return estimate.verdict is Verdict.FITS
    return estimate.peak.device_bytes <= estimate.gpu.usable_bytes * THRESHOLDS[utilization].target
