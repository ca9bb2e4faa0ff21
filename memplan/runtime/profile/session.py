"""One recording in progress: counters, books, and what writes samples or events down."""

import time
from dataclasses import dataclass
from importlib import metadata

import torch

from memplan.runtime.profile.counters import Counters, ResidentMemory, chosen
from memplan.runtime.profile.history import CountedHistory, CudaHistory, History, ProfiledHistory
from memplan.runtime.profile.ledger import RegionLedger
from memplan.runtime.profile.recording import Recording
from memplan.runtime.profile.records import Depth, Events, Overhead
from memplan.runtime.profile.sampler import Sampler

DROPPED = "{} events found no room: allow more (most_events=), or record fewer steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to record."""

    name: str
    """Of the outermost region."""
    depth: Depth
    """How closely to look."""
    device: str | None = None
    """``cpu``, ``cuda`` or ``cuda:N``; None for the current CUDA device where there is one, else the CPU."""
    sample_seconds: float = 0.01
    """What should lie between two samples."""
    most_events: int = 2_000_000
    """Events to keep; 32 bytes each on the CPU."""


class ProfileSession:
    """A recording in progress; ``ledger`` has its books. Safe to use from several threads.

    Raises:
        MemplanError: The device is none, or somebody else has the allocator's place.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._device, self._counters = chosen(settings.device)
        self._history = _history(self._device, self._counters, settings) if settings.depth == "full" else None
        self._steps: list[int] = []
        self._counters.start()
        try:
            self._start_bytes = self._counters.take().allocated
            if self._history:
                self._history.start()
        except BaseException:
            self._counters.stop()
            raise
        self._wall, self._began = time.time(), time.monotonic_ns()
        if self._history:
            self.ledger = RegionLedger(
                self._counters.take, self._began, thread=self._history.thread, pin=self._history.pin
            )
        else:
            self.ledger = RegionLedger(self._counters.take, self._began)
        self._sampler = Sampler(self.ledger.sample, settings.sample_seconds) if settings.depth == "sampled" else None
        self.ledger.enter(self, settings.name)
        if self._sampler:
            self._sampler.start()

    def step(self) -> None:
        """A step begins."""
        moment = time.monotonic_ns() - self._began
        if self._history:
            self._history.pin(moment)
        self._steps.append(moment)

    def finish(self, *, failed: bool = False) -> Recording:
        """End, with an exception or not, and say what was seen."""
        if self._sampler:
            self._sampler.stop()
        self.ledger.leave(self, failed=failed)
        self.ledger.end()
        seconds = (time.monotonic_ns() - self._began) / 1e9
        end_bytes = self._counters.take().allocated
        try:
            events, moments = self._history.finish(self._began) if self._history else (None, {})
        finally:
            self._counters.stop()
        return Recording(
            name=self._settings.name,
            depth=self._settings.depth,
            device=self._device,
            source=self._counters.source,
            began=self._wall,
            seconds=seconds,
            start_bytes=self._start_bytes,
            end_bytes=end_bytes,
            peak_bytes=self.ledger.peak,
            regions=self.ledger.regions(),
            steps=tuple(moments.get(step, step) for step in self._steps),
            samples=tuple(self._sampler.samples) if self._sampler else (),
            events=events,
            borders=tuple(
                border._replace(nanoseconds=moments.get(border.nanoseconds, border.nanoseconds))
                for border in self.ledger.log
            ),
            overhead=self._overhead(),
            notes=tuple(self._notes(events)),
            versions={"memplan": metadata.version("memplan"), "torch": torch.__version__},
        )

    def _overhead(self) -> Overhead:
        sampler = self._sampler
        return Overhead(
            borders=self.ledger.crossed,
            border_seconds=self.ledger.nanoseconds / 1e9,
            samples=sampler.looks if sampler else 0,
            sampling_seconds=sampler.seconds if sampler else 0.0,
            interval_seconds=sampler.interval if sampler else 0.0,
        )

    def _notes(self, events: Events | None) -> list[str]:
        dropped = [DROPPED.format(f"{events.dropped:,}")] if events and events.dropped else []
        return [*self._counters.notes, *(self._history.notes if self._history else ()), *dropped]


def _history(device: str, counters: Counters, settings: Settings) -> History:
    if device != "cpu":
        return CudaHistory(int(device.removeprefix("cuda:")), settings.most_events)
    return ProfiledHistory() if isinstance(counters, ResidentMemory) else CountedHistory(settings.most_events)
