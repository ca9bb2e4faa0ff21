"""Processes that evaluate candidates: loky's, as joblib brings them. None waits for another while there is work."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from math import inf
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NamedTuple

from memplan.hardware.profile import GpuProfile
from memplan.plan.recommend.certificate import key_of
from memplan.plan.recommend.evaluate import Evaluation, lost, work
from memplan.plan.recommend.records import Candidate, StepLimits

MOST_PROCESSES = 8
"""Each holds the traces of a large model: a gigabyte or two."""
Work = Callable[[Candidate, GpuProfile, StepLimits], Evaluation]
"""What a worker runs: at module level, or a ``functools.partial`` of such a function."""
IDLE_SECONDS = 300
"""After which a process ends that has nothing to do: joblib's figure."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class _Running(NamedTuple):
    """A candidate that a process evaluates."""

    candidate: Candidate
    function: Work
    began: float
    """Time of ``time.perf_counter``."""


class Workers:
    """Evaluates candidates side by side, as many at once as there are processes."""

    def __init__(
        self,
        profile: GpuProfile,
        limits: StepLimits,
        *,
        processes: int | None,
        timeout: float,
    ) -> None:
        """Start nothing yet.

        Args:
            profile: The device.
            limits: What candidates may take.
            processes: At once; None: as many as processors.
            timeout: Seconds for one candidate.
        """
        self._profile, self._limits = profile, limits
        self._timeout = timeout
        self.processes = processes or min(os.cpu_count() or 1, MOST_PROCESSES)
        self._running: dict[Future[Evaluation], _Running] = {}

    def run(
        self,
        candidates: Sequence[Candidate],
        function: Work = work,
        *,
        meanwhile: Iterable[Candidate] = (),
        begin_until: float = inf,
        until: float = inf,
    ) -> Iterator[Evaluation]:
        """Outcomes as they come; the next candidate begins as soon as a process is free.

        One whose process dies, or that takes too long, is lost, and the others go on.

        Args:
            candidates: What to evaluate, the most wanted first.
            function: Evaluates one of them in a worker.
            meanwhile: For processes that would wait for the last of these: outcomes come now, or in a later run.
            begin_until: Time of ``time.perf_counter`` after which none begins any more.
            until: The same for those that run: they are abandoned.
        """
        latest, wanted = min(begin_until, until), set(map(key_of, candidates))
        # What another run began for want of anything else may end before it is its turn in this one.
        ended: set[str] = set()
        waiting, fillers = (each for each in candidates if key_of(each) not in ended), iter(meanwhile)
        try:
            while True:
                self._begin(waiting, function, latest)
                if not any(key_of(each.candidate) in wanted for each in self._running.values()):
                    return
                self._begin(fillers, function, latest)
                if self._time_is_over(until):
                    self.abandon()
                    return
                for outcome in self._ended(latest, until):
                    ended.add(key_of(outcome.candidate))
                    yield outcome
        except BaseException:  # An interrupt among them.
            self.abandon()
            raise

    def abandon(self) -> None:
        """End whatever runs."""
        if self._running:
            self._running.clear()
            _executor(self.processes).shutdown(wait=True, kill_workers=True)

    def _begin(self, candidates: Iterator[Candidate], function: Work, latest: float) -> None:
        """Give every free process something to do that no other does already."""
        while len(self._running) < self.processes and time.perf_counter() < latest:
            candidate = next(candidates, None)
            if candidate is None:
                return
            if all(key_of(each.candidate) != key_of(candidate) for each in self._running.values()):
                arguments = (Path.cwd(), function, candidate, self._profile, self._limits)
                with _interrupts_held():
                    future = _executor(self.processes).submit(_run_in, *arguments)
                self._running[future] = _Running(candidate, function, time.perf_counter())

    def _time_is_over(self, until: float) -> bool:
        """Wait for something to end, or for too long; is the time of all of them over?"""
        first = min(each.began for each in self._running.values())
        latest = min(first + self._timeout, until)
        found = wait(self._running, max(0.0, latest - time.perf_counter()), FIRST_COMPLETED)
        return not found.done and latest == until

    def _ended(self, latest: float, until: float) -> Iterator[Evaluation]:
        """Outcomes of what ended. Where a process died or one took too long, all that runs began for nothing."""
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        done = [future for future in self._running if future.done()]
        died = [future for future in done if isinstance(future.exception(), TerminatedWorkerError)]
        for future in done:
            if future not in died:
                del self._running[future]
                yield future.result()
        if done and not died:
            return
        running = list(self._running.values())
        self.abandon()
        now = time.perf_counter()
        late = [each for each in running if not died and now - each.began >= self._timeout]
        yield from (lost(each.candidate, f"{_TOO_LONG} {self._timeout:g} seconds", _MORE_TIME) for each in late)
        if died and len(running) == 1:
            yield lost(running[0].candidate, _KILLED, _LESS_MEMORY)
            return
        # It was one of them, and nobody knows which: each once more, alone.
        for each in running:
            if each not in late:
                yield from self.run([each.candidate], each.function, begin_until=latest, until=until)


_KILLED, _LESS_MEMORY = "its process was killed", "probably out of memory: fewer --jobs need less of it"
_TOO_LONG, _MORE_TIME = "its trace did not come to an end within", "allow more --timeout"


def _executor(processes: int) -> Any:
    """The processes, started where none are; each computes with its share of the processors."""
    from joblib.externals.loky import get_reusable_executor

    share = str(max((os.cpu_count() or 1) // processes, 1))
    threads = {name: os.environ.get(name, share) for name in _THREADS}
    return get_reusable_executor(processes, timeout=IDLE_SECONDS, env=threads)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold interrupts back: processes that start meanwhile hear of none. Whoever is interrupted ends them."""
    if sys.platform == "win32":  # Its processes inherit no mask.
        yield
        return
    # It would let interrupts through again when the first process starts (until Python 3.11 at least).
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_in(folder: Path, function: Work, candidate: Candidate, profile: GpuProfile, limits: StepLimits) -> Evaluation:
    """Run in the folder of whoever asks: joblib's processes are kept, and stand where they were started."""
    with suppress(OSError):  # Elsewhere there may be no such folder.
        os.chdir(folder)
    return function(candidate, profile, limits)
