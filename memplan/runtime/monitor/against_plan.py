"""Which figure of a reading can be held against which figure of a plan."""

from typing import NamedTuple

from memplan.runtime.meters.records import DeviceReading
from memplan.runtime.monitor.records import Health, RunPlan
from memplan.units import format_bytes

_SAME_SIZE = 0.05
"""Two cards of one name differ by less (ECC, firmware); cards of different sizes differ by more."""


class PlanComparison(NamedTuple):
    """A measured figure beside the predicted one; an empty name: there is none."""

    figure: str = ""
    measured: int | None = None
    predicted: int | None = None
    high: int | None = None


def comparison(device: DeviceReading, plan: RunPlan | None, before: Health | None) -> PlanComparison:
    """Compare one device with the plan.

    Where the allocator's counters are there, segments are compared: other processes do not count in them. What lies
    outside the allocator is taken as predicted.

    ``before`` is the device's last judgement: what is only seen from outside has no peak of its own.
    """
    if plan is None or (device.device == "cpu") != (plan.gpu == "cpu"):
        return PlanComparison()
    if device.device == "cpu":
        # The CPU has no segments and no context, so that the three predicted figures are the same.
        if device.peak_allocated is None:
            return PlanComparison()
        return PlanComparison("allocated", device.peak_allocated, plan.device, plan.high)
    if device.peak_reserved is not None:
        return PlanComparison("reserved", device.peak_reserved, plan.reserved, max(0, plan.high - plan.outside))
    earlier = before.measured if before and before.figure == "used" and before.measured else 0
    return PlanComparison("used", max(earlier, device.used), plan.device, plan.high)


def mismatch(device: DeviceReading, plan: RunPlan | None) -> str:
    """Why the plan is for another device; empty where it is not."""
    if plan is None:
        return ""
    if (device.device == "cpu") != (plan.gpu == "cpu"):
        return f"the plan is for {plan.gpu}, and this is {device.device}"
    if plan.total and device.device != "cpu" and abs(device.total - plan.total) > _SAME_SIZE * plan.total:
        return (
            f"the plan is for {plan.gpu} with {format_bytes(plan.total)}, "
            f"and {device.device} has {format_bytes(device.total)}"
        )
    return ""
