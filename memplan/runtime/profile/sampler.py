"""Looks at the counters from time to time, and no more often than its share of a processor allows."""

import threading
import time
from collections.abc import Callable

from memplan.runtime.profile.records import Sample

SHARE = 0.01
"""Of one processor, at most, that looking may take."""
MOST_SAMPLES = 1 << 16
"""Beyond them neighbours become one, and looks twice as rare: a day's run needs no more room than a minute's."""


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
