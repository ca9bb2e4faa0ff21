"""What a judgement looks at: the earlier state of each device, and the plan's figure that its own is held against."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from memplan.runtime.meters.records import DeviceReading, Reading
from memplan.runtime.monitor.records import Check, Health, Level, RunPlan, Thresholds
from memplan.units import format_bytes

_SAME_SIZE = 0.05
"""Two cards of one name differ by less (ECC, firmware); cards of different sizes differ by more."""


class PlanComparison(NamedTuple):
    """A measured figure beside the predicted one; an empty name: there is none."""

    figure: str = ""
    measured: int | None = None
    predicted: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that a judgement looks at."""

    number: int
    """Of the check that is made."""
    step: int | None
    """Its step."""
    reading: Reading
    """What was read."""
    history: Sequence[Check]
    """Earlier checks, oldest first."""
    plan: RunPlan | None
    """What was predicted."""
    thresholds: Thresholds
    """Where levels begin."""
    windows: Sequence[Sequence[Check]]
    """Those of ``history`` that trends rest on: of all of it, and of its end."""

    @property
    def last(self) -> Check | None:
        """The check before this one."""
        return self.history[-1] if self.history else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One device within a reading."""

    index: int
    """Which of ``reading.devices``."""
    device: DeviceReading
    """Its reading."""
    rank: int | None
    """Rank of the process that read it."""
    step: int | None = None
    """Optimizer steps of that process."""

    def reading_in(self, check: Check | None) -> DeviceReading | None:
        """The same device in an earlier check; a process that comes to be seen from inside begins anew."""
        if check is None or self.index >= len(check.devices) or check.devices[self.index].rank != self.rank:
            return None
        earlier, now = check.reading.devices[self.index], self.device
        same = (earlier.device, earlier.uuid) == (now.device, now.uuid)
        return earlier if same and (earlier.allocated is None) == (now.allocated is None) else None

    def health_in(self, check: Check | None) -> Health | None:
        """Its earlier judgement."""
        return check.devices[self.index] if check and self.reading_in(check) else None


def level_before(before: Health | None, code: str) -> Level:
    """How bad this reason was at the last check."""
    reasons = before.reasons if before else ()
    return max((Level.of(each.severity) for each in reasons if each.code == code), default=Level.NORMAL)


def level_for(share: float, before: Level, limits: Thresholds) -> Level:
    """A level begins at its threshold and ends somewhat below: a share that swings around it makes one change."""
    begins = {Level.WARNING: limits.warning, Level.CRITICAL: limits.critical, Level.EMERGENCY: limits.emergency}
    held = (level for level, begin in begins.items() if share >= begin - (limits.release if level <= before else 0))
    return max(held, default=Level.NORMAL)


def called(device: str, rank: int | None) -> str:
    """A device as sentences name it."""
    return device if rank is None else f"{device} of rank {rank}"


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
