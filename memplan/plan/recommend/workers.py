"""Processes that evaluate candidates: joblib's, so that whoever configures another backend gets it."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from multiprocessing import resource_tracker
from pathlib import Path

from memplan.hardware.profile import GpuProfile
from memplan.plan.recommend.evaluate import Evaluation, lost, work
from memplan.plan.recommend.records import Candidate, StepLimits

MOST_PROCESSES = 8
"""Each holds the traces of a large model: a gigabyte or two."""
Work = Callable[[Candidate, GpuProfile, StepLimits], Evaluation]
"""What a worker runs: at module level, or a ``functools.partial`` of such a function."""
LEAST_PROCESSES = 2
"""With one, joblib would run user code in this very process."""


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
        wanted = processes or min(os.cpu_count() or 1, MOST_PROCESSES)
        self.processes = max(LEAST_PROCESSES, wanted)

    def run(
        self, candidates: Sequence[Candidate], function: Work = work, *, begin_until: float = inf, until: float = inf
    ) -> Iterator[Evaluation]:
        """Outcomes as they come; the next candidate begins as soon as a process is free.

        One whose process dies, or that takes too long, is lost, and the others go on.

        Args:
            candidates: What to evaluate, the most wanted first.
            function: Evaluates one of them in a worker.
            begin_until: Time of ``time.perf_counter`` after which none begins any more.
            until: The same for those that run: they are abandoned.
        """
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        waiting = list(candidates)
        while waiting and time.perf_counter() < min(begin_until, until):
            begun: list[Candidate] = []
            ended: list[Candidate] = []
            try:
                for outcome in self._outcomes(waiting, function, begun, begin_until=begin_until, until=until):
                    ended.append(outcome.candidate)
                    yield outcome
            except (TimeoutError, multiprocessing.TimeoutError):
                if time.perf_counter() >= until:
                    return
                # Since the last outcome none has begun: all of them have run so long.
                reason = f"{_TOO_LONG} {self._timeout:g} seconds"
                yield from (lost(each, reason, _MORE_TIME) for each in begun if each not in ended)
            except TerminatedWorkerError:
                running = [each for each in begun if each not in ended]
                if len(running) == 1:
                    yield lost(running[0], _KILLED, _LESS_MEMORY)
                else:
                    # It was one of them, and nobody knows which: each once more, alone.
                    for each in running:
                        yield from self.run([each], function, begin_until=begin_until, until=until)
            else:
                return
            waiting = [each for each in waiting if each not in begun]

    def _outcomes(
        self,
        candidates: Sequence[Candidate],
        function: Work,
        begun: list[Candidate],
        *,
        begin_until: float,
        until: float,
    ) -> Iterator[Evaluation]:
        """The same, up to the first that is lost; those that have begun are added to ``begun``.

        Raises:
            TimeoutError: The time is over, or of one.
            TerminatedWorkerError: The process of one died.
        """
        from joblib import Parallel, delayed

        folder = Path.cwd()

        def jobs() -> Iterator[object]:
            for candidate in candidates:
                if candidate is not candidates[0] and time.perf_counter() >= begin_until:
                    return
                begun.append(candidate)
                yield delayed(_run_in)(folder, function, candidate, self._profile, self._limits)

        run = Parallel(
            n_jobs=self.processes,
            pre_dispatch=self.processes,
            batch_size=1,
            timeout=self._timeout,
            return_as="generator_unordered",
        )
        with _interrupts_held():
            outcomes = run(jobs())
        while True:
            # joblib looks at this as long as it waits for the next outcome.
            run.timeout = max(0.0, min(self._timeout, until - time.perf_counter()))
            outcome = next(outcomes, None)
            if outcome is None:
                return
            yield outcome


_KILLED, _LESS_MEMORY = "its process was killed", "probably out of memory: fewer --jobs need less of it"
_TOO_LONG, _MORE_TIME = "its trace did not come to an end within", "allow more --timeout"


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
