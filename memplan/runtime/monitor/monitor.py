"""The monitor as a library: ``check()`` after a step, or a thread that checks by itself."""

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self

from memplan.errors import MemplanError
from memplan.runtime.meters import cpu
from memplan.runtime.meters.read import read
from memplan.runtime.meters.records import Reading
from memplan.runtime.monitor.judge import DEFAULTS, judge
from memplan.runtime.monitor.log import Log
from memplan.runtime.monitor.plan import read_plan
from memplan.runtime.monitor.records import Check, Level, RegionUse, RunPlan, Thresholds
from memplan.runtime.profile.profile import recorded_regions

_LOG = logging.getLogger("memplan")


class MemoryMonitor:
    """Judges the memory of this process and its devices. Thread-safe; a context manager that ``close``s.

    A check takes a fraction of a millisecond and asks no device to wait. Rises of the level are warnings of the logger
    ``memplan``.

    Args:
        plan: A prediction, or the file that ``memplan estimate -f json=FILE`` wrote; None: nothing is compared.
        gpu: Name of the profile, where the file has several.
        thresholds: Where levels begin.
        log: File to append a line of JSON to for each check.
        regions: Asked at each check for the bytes of parts of the step. None: those of the ``memplan.profile``
            recording in progress, where there is one.
        count_cpu: Count CPU tensors exactly, with an allocator that is compiled on first use. Where it cannot be,
            checks say that nothing is counted.
        reader: What reads; for tests, and for devices that memplan does not know.

    Raises:
        UsageError: The plan cannot be read, or the log not be written.
    """

    def __init__(
        self,
        *,
        plan: RunPlan | Path | str | None = None,
        gpu: str | None = None,
        thresholds: Thresholds = DEFAULTS,
        log: Path | str | None = None,
        regions: Callable[[], Sequence[RegionUse]] | None = None,
        count_cpu: bool = False,
        reader: Callable[[], Reading] = read,
    ) -> None:
        self.plan = read_plan(plan, gpu) if isinstance(plan, str | Path) else plan
        self.thresholds = thresholds
        self._log = Log(log) if log is not None else None
        self._regions = regions or _recorded
        self._read = reader
        self._history: deque[Check] = deque(maxlen=thresholds.window)
        self._lock = Lock()
        self._counts = count_cpu and _counts()

    def check(self, step: int | None = None) -> Check:
        """Read, judge, and log; with the optimizer step that was just done trends are by step."""
        with self._lock:
            reading = self._read()
            made = judge(
                reading,
                self._history,
                self.plan,
                self.thresholds,
                step=step,
                ranks=[_rank()] * len(reading.devices),
                regions=self._regions(),
            )
            before = self._history[-1].level if self._history else Level.NORMAL
            self._history.append(made)
        if self._log:
            self._log.write(made)
        if made.level > before:
            _tell(made)
        return made

    def latest(self) -> Check | None:
        """The last check; None before the first. What an exporter asks for."""
        return self._history[-1] if self._history else None

    @contextmanager
    def every(self, seconds: float) -> Iterator[None]:
        """Check by a thread while the context lasts; an error in it ends the thread, not the training."""
        over = Event()

        def run() -> None:
            try:
                while not over.wait(seconds):
                    self.check()
            except Exception:  # noqa: BLE001 - training goes on.
                _LOG.exception("the memory monitor stopped")

        thread = Thread(target=run, name="memplan-monitor", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(timeout=seconds + 1)

    def close(self) -> None:
        """Stop counting and close the log; may be called again."""
        if self._counts:
            self._counts = False
            cpu.stop_counting()
        if self._log:
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _counts() -> bool:
    try:
        cpu.start_counting()
    except MemplanError as error:
        _LOG.warning("CPU tensors are not counted: %s", error.what)
        return False
    return True


def _recorded() -> Sequence[RegionUse]:
    """By path below the recording's own name; what a recording took as a whole stands under that."""
    return [
        RegionUse(name="/".join(each.path[1:]) or each.path[0], bytes=each.growth_bytes) for each in recorded_regions()
    ]


def _rank() -> int | None:
    """As launchers tell it (torchrun, accelerate, Lightning)."""
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdigit() and os.environ.get("WORLD_SIZE", "1") != "1" else None


def _tell(made: Check) -> None:
    worst = made.recommendations[0]
    _LOG.warning("memory %s: %s (%s). %s", made.level.word, worst.message, worst.code, worst.fix)
