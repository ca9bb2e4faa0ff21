"""Processes that evaluate candidates: joblib's, so that whoever configures another backend gets it."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path

from memplan.errors import EstimateError
from memplan.hardware.profile import GpuProfile
from memplan.plan.recommend.evaluate import Evaluation, work
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
        self,
        candidates: Sequence[Candidate],
        function: Work = work,
        *,
        needed: int = 0,
        begin_until: float = inf,
        until: float = inf,
    ) -> Iterator[Evaluation]:
        """Outcomes as they come; the next candidate begins as soon as a process is free.

        Args:
            candidates: What to evaluate, the most wanted first.
            function: Evaluates one of them in a worker.
            needed: So many of the first are waited for, whatever the time.
            begin_until: Time of ``time.perf_counter`` after which none begins any more.
            until: The same for those that run: they are abandoned.

        Raises:
            EstimateError: A worker was killed, or took too long.
        """
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        if not candidates or (not needed and time.perf_counter() >= min(begin_until, until)):
            return
        first, waited_for = candidates[0], list(candidates[:needed])
        folder = Path.cwd()
        jobs = (
            delayed(_run_in)(folder, function, candidate, self._profile, self._limits)
            for candidate in candidates
            if candidate is first or candidate in waited_for or time.perf_counter() < begin_until
        )
        run = Parallel(
            n_jobs=self.processes,
            pre_dispatch=self.processes,
            batch_size=1,
            timeout=self._timeout,
            return_as="generator_unordered",
        )
        with _interrupts_held():
            outcomes = run(jobs)
        try:
            while True:
                # joblib looks at this as long as it waits for the next outcome.
                end = inf if waited_for else until
                run.timeout = max(0.0, min(self._timeout, end - time.perf_counter()))
                outcome = next(outcomes, None)
                if outcome is None:
                    return
                waited_for = [each for each in waited_for if each != outcome.candidate]
                yield outcome
        except (TimeoutError, multiprocessing.TimeoutError) as error:
            if not waited_for and time.perf_counter() >= until:
                return
            raise EstimateError(
                f"a trace did not come to an end within {self._timeout:g} seconds", hint="allow more --timeout"
            ) from error
        except TerminatedWorkerError as error:
            raise EstimateError(
                "a process that traced was killed",
                hint="probably out of memory: fewer --jobs need less of it",
            ) from error


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold interrupts back: processes that start meanwhile hear of none. Whoever is interrupted ends them."""
    if sys.platform == "win32":  # Its processes inherit no mask.
        yield
        return
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
