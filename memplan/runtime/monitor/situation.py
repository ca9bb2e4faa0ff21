"""What a judgement looks at, and the earlier state of each device."""

from collections.abc import Sequence
from dataclasses import dataclass

from memplan.runtime.meters.records import DeviceReading, Reading
from memplan.runtime.monitor.records import Check, Health, Level, RunPlan, Thresholds


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
