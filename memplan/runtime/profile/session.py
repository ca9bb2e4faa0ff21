"""One recording in progress: counters, books, what writes events down, and what looks from time to time."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

import torch

from memplan.runtime.profile.counters import Counters, ResidentMemory, chosen
from memplan.runtime.profile.history import CountedHistory, CudaHistory, History, ProfiledHistory
from memplan.runtime.profile.ledger import RegionLedger
from memplan.runtime.profile.recording import Recording
from memplan.runtime.profile.records import Depth, Events, Overhead, Sample

DROPPED = "{} events found no room: allow more (most_events=), or record fewer steps"
SHARE = 0.01
"""Of one processor, at most, that looking may take."""
MOST_SAMPLES = 1 << 16
"""Beyond them neighbours become one, and looks twice as rare: a day's run needs no more room than a minute's."""


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


class Sampler:
    """A thread that samples.

    Some seconds should lie between two looks, which take at most ``share`` of a processor. ``most_samples`` is even.
    """

    def __init__(
        self,
        look: Callable[[], Sample],
        interval_seconds: float,
        *,
        share: float = SHARE,
        most_samples: int = MOST_SAMPLES,
    ) -> None:
        self._look, self._share, self._most = look, share, most_samples
        self.interval = interval_seconds
        """What lies between two looks now."""
        self.samples: list[Sample] = []
        """So far."""
        self.looks = 0
        """How many there were."""
        self.seconds = 0.0
        """Processor time that they took."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memplan.profile", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, with a last look."""
        self._ended.set()
        self._thread.join()
        self.keep(self._look())

    def keep(self, sample: Sample) -> None:
        """Add a sample; where there is no room, join those that are there by twos."""
        self.samples.append(sample)
        if len(self.samples) >= self._most:
            self.samples = [_joined(*self.samples[index : index + 2]) for index in range(0, len(self.samples), 2)]
            self.interval *= 2

    def _run(self) -> None:
        while not self._ended.wait(self._pause()):
            self.keep(self._look())
            self.looks += 1
            # Since the thread began: what waking up takes is in it.
            self.seconds = time.thread_time()

    def _pause(self) -> float:
        """As asked for, or longer where looks take more than their share."""
        cost = self.seconds / self.looks if self.looks else 0.0
        self.interval = max(self.interval, cost / self._share)
        return self.interval


def _joined(one: Sample, other: Sample) -> Sample:
    """Two samples as one: the state after the later, the higher peak."""
    return other._replace(peak_bytes=max(one.peak_bytes, other.peak_bytes))
