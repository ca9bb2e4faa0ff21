"""The share of a device that a plan may take."""

from collections.abc import Mapping
from typing import Literal, get_args

from memplan.hardware.profile import GpuProfile
from memplan.measure.records import Estimate, Verdict
from memplan.plan.batch.records import UtilizationThresholds

Utilization = Literal["conservative", "balanced", "aggressive"]
UTILIZATIONS: tuple[str, ...] = get_args(Utilization)
THRESHOLDS: Mapping[Utilization, UtilizationThresholds] = {
    "conservative": UtilizationThresholds(target=0.85, warn=0.88, critical=0.92, emergency=0.95),
    "balanced": UtilizationThresholds(target=0.90, warn=0.92, critical=0.95, emergency=0.97),
    "aggressive": UtilizationThresholds(target=0.92, warn=0.94, critical=0.96, emergency=0.98),
}
"""Choice of this project, not a measurement: how careful a user wants to be."""


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
