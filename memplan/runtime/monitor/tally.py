"""What is kept of all checks of a run while it goes on: levels over time, peaks, a curve that stays small."""

from collections import deque
from typing import TypeVar

from memplan.findings.records import SEVERITIES, Finding
from memplan.runtime.meters.records import DeviceReading
from memplan.runtime.monitor.outcome import LevelChange, Peak
from memplan.runtime.monitor.records import Check, Health, Level

Number = TypeVar("Number", int, float)

_CURVE = 400
"""Points at most; beyond, every other one goes, and half as many come."""
_CHANGES = 500
"""Levels over time that are kept: a run that changes more often has told enough."""


class CheckTally:
    """Counts checks in. One thread at a time."""

    def __init__(self, *, started: float, window: int) -> None:
        self._started = started
        self.history: deque[Check] = deque(maxlen=window)
        self.changes: list[LevelChange] = []
        self.level = Level.NORMAL
        self.checks = 0
        self.steps: int | None = None
        self.resident = 0
        self.notes: list[str] = []
        self._noted: tuple[str, ...] = ()
        self.curve: list[tuple[float, int, int]] = []
        self._stride = 1
        self._peaks: dict[tuple[int | None, str, str], Peak] = {}
        self._worst: dict[str, Finding] = {}

    def add(self, check: Check) -> LevelChange | None:
        """Count one check in; returns the change of the level, if there is one."""
        self.history.append(check)
        self.checks += 1
        self.steps = check.step if check.step is not None else self.steps
        self.resident = max(self.resident, check.reading.host.resident)
        self._noted = check.notes
        for device, health in zip(check.reading.devices, check.devices, strict=True):
            key = (health.rank, device.device, device.uuid)
            self._peaks[key] = _higher(self._peaks.get(key), device, health)
        self._draw(check)
        self._recommend(check)
        return self._change(check)

    @property
    def peaks(self) -> tuple[Peak, ...]:
        """By rank and device; what was seen before a process spoke, or before the other ranks did, stands back."""
        found = list(self._peaks.values())
        for preferred in (_is_gpu, _has_segments, _has_rank):
            found = [peak for peak in found if preferred(peak)] or found
        return tuple(found)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """What was noted beside the checks, and what still held at the last of them."""
        return (*self.notes, *self._noted)

    @property
    def recommendations(self) -> tuple[Finding, ...]:
        """One for each code, worst first."""
        return tuple(sorted(self._worst.values(), key=lambda each: (SEVERITIES.index(each.severity), each.code)))

    def _change(self, check: Check) -> LevelChange | None:
        before = self.changes[-1].level if self.changes else None
        self.level = max(self.level, check.level)
        if check.level is before or len(self.changes) >= _CHANGES:
            return None
        sentence = check.recommendations[0].message if check.level and check.recommendations else ""
        seconds = check.reading.seconds - self._started
        change = LevelChange(seconds=seconds, step=check.step, level=check.level, sentence=sentence)
        self.changes.append(change)
        return change

    def _recommend(self, check: Check) -> None:
        for health in (*check.devices, check.host):
            for reason in health.reasons:
                known = self._worst.get(reason.code)
                # The last sentence of the worst level has the latest figures.
                if known is None or Level.of(reason.severity) >= Level.of(known.severity):
                    self._worst[reason.code] = reason

    def _draw(self, check: Check) -> None:
        if (self.checks - 1) % self._stride:
            return
        device = check.reading.devices[0]
        held = check.reading.host.resident if device.device == "cpu" else device.reserved
        allocated = device.allocated or 0
        self.curve.append((check.reading.seconds - self._started, allocated, max(allocated, held or device.used)))
        if len(self.curve) >= _CURVE:
            self.curve, self._stride = self.curve[::2], 2 * self._stride


def _higher(before: Peak | None, device: DeviceReading, health: Health) -> Peak:
    return Peak(
        device=device.device,
        name=device.name,
        rank=health.rank,
        total=device.total,
        used=max(device.in_use, before.used if before else 0),
        allocated=_larger(before.allocated if before else None, device.peak_allocated),
        reserved=_larger(before.reserved if before else None, device.peak_reserved),
        figure=health.figure,
        measured=_larger(before.measured if before else None, health.measured),
        predicted=health.predicted,
        predicted_high=health.predicted_high,
        fragmentation=_larger(before.fragmentation if before else None, health.fragmentation),
    )


def _is_gpu(peak: Peak) -> bool:
    return peak.device != "cpu"


def _has_segments(peak: Peak) -> bool:
    return peak.reserved is not None


def _has_rank(peak: Peak) -> bool:
    return peak.rank is not None


def _larger(one: Number | None, other: Number | None) -> Number | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
