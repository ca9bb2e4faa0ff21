"""Predicts a job on the device at hand, with the stream of events that a run should show. Called in a child process."""

import os
from collections.abc import Callable

import torch

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.measure.answer import compose
from memplan.measure.measurer import measure
from memplan.tracing.records import Trace
from memplan.validate.records import JobPrediction
from memplan.validate.run import CPU_THREADS
from memplan.validate.streams import predicted_stream

MOST_EVENTS = 200_000
"""Events after which a stream ends with the step: a run records fewer (``memplan.validate.cuda``)."""


def predict_here(
    spec: JobSpec,
    profile: GpuProfile,
    *,
    steps: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> JobPrediction:
    """Estimate a job and lay out its stream.

    Without a number of steps as many are taken as the replay needed until nothing changed any more.

    Raises:
        MemplanError: As for ``estimate``.
    """
    # The trace needs no device, and must not leave a context on the one that is to be measured.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if profile.kind == "cpu":
        torch.set_num_threads(CPU_THREADS)
    measured = measure(spec, profile, progress=progress)
    trace = measured.lifetimes.trace
    # The replay's own repetitions begin with the last traced step.
    repeated = max(measured.memory.steps_replayed - 1, 0) if trace.repeats else 0
    count = steps or len(trace.steps) + repeated
    return JobPrediction(
        estimate=compose(spec, profile, measured),
        stream=predicted_stream(trace, steps=_laid_out(trace, count)),
        steps=count,
        traced_steps=len(trace.steps),
    )


def _laid_out(trace: Trace, steps: int) -> int:
    """Steps of the stream: those that were traced, and of their repetitions as many as anyone compares."""
    if not trace.steps:
        return steps
    last = trace.steps[-1]
    enough = MOST_EVENTS // max(last.end_event - last.first_event, 1)
    return min(steps, max(len(trace.steps), enough))
