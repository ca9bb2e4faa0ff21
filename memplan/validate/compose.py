"""The library call: predict a job on the device at hand, run it there, and put both side by side."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from memplan.errors import UsageError
from memplan.hardware.profile import GpuProfile
from memplan.job.isolate import run_isolated
from memplan.job.spec import JobSpec
from memplan.units import GIB, format_bytes
from memplan.validate.compare import compare
from memplan.validate.profiles import profile_for
from memplan.validate.records import DeviceFacts, JobPrediction, Peaks, RealRun, Validation
from memplan.validate.watcher import free_before

DEFAULT_TIMEOUT = 600.0
"""Seconds for each child process: one predicts, one runs."""
DEFAULT_SECONDS = 60.0
"""Seconds after which no further step begins."""
SCALAR_BYTES = 16
"""On the CPU, Python numbers become tensors of up to 16 bytes in the memory that is measured; traces leave them out."""
PROCESS_BYTES = 1 * GIB
"""Host memory of a Python process with torch, transformers and the profiler's events (measured: 0.5 to 0.9 GiB)."""
Progress = Callable[[str], None]


def validate(
    spec: JobSpec,
    *,
    device: str = "auto",
    steps: int | None = None,
    seconds: float = DEFAULT_SECONDS,
    timeout: float = DEFAULT_TIMEOUT,
    force: bool = False,
    keep: Path | None = None,
    profile_dirs: Sequence[Path] = (),
    progress: Progress | None = None,
) -> Validation:
    """Predict a job, run it for real, and compare.

    Args:
        spec: The job.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        steps: Steps to run; None runs as many as the prediction needs until nothing changes any more.
        seconds: No further step begins after so long.
        timeout: Seconds for each child process.
        force: Run even where the prediction does not fit?
        keep: Where the run's memory snapshot goes (CUDA only).
        profile_dirs: Folders of further GPU profiles.
        progress: Told what happens now.

    Raises:
        UsageError: No such device, or the prediction does not fit it.
        EstimateError: User code fails, in the trace or for real.
    """
    facts = device_facts(device)
    if keep is not None and facts.kind == "cpu":
        raise UsageError("only a CUDA device writes memory snapshots", where="--keep-snapshot")
    profile, note = profile_for(facts, profile_dirs=profile_dirs)
    prediction = predict(spec, profile, steps=steps, timeout=timeout, progress=progress)
    if not force:
        check_room(prediction, facts)
    limits = Limits(steps=prediction.steps, traced_steps=prediction.traced_steps, seconds=seconds, timeout=timeout)
    with watched(facts) as free:
        run = run_for_real(spec, facts, limits, free_before=free, keep=keep, progress=progress)
    return put_together(facts, note, prediction, run)


def device_facts(device: str) -> DeviceFacts:
    """Describe a device, in a child process: this one gets no CUDA context.

    Raises:
        UsageError: There is no such device.
    """
    return run_isolated(_facts_in_child, device, timeout=DEFAULT_TIMEOUT)


def predict(
    spec: JobSpec,
    profile: GpuProfile,
    *,
    steps: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    progress: Progress | None = None,
) -> JobPrediction:
    """Predict a job with its stream of events, in a child process."""
    return run_isolated(_predict_in_child, spec, profile, steps, timeout=timeout, progress=progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a real run goes on."""

    steps: int
    """Steps at most."""
    traced_steps: int
    """Steps that run, and are recorded, whatever the time."""
    seconds: float = DEFAULT_SECONDS
    """No further step begins after so long."""
    timeout: float = DEFAULT_TIMEOUT
    """Seconds after which the process is killed."""


def watched(facts: DeviceFacts) -> AbstractContextManager[int | None]:
    """What a device has left before the runs in the context begin; None where nobody can tell."""
    return nullcontext() if facts.kind == "cpu" else free_before(facts.index)


def run_for_real(
    spec: JobSpec,
    facts: DeviceFacts,
    limits: Limits,
    *,
    free_before: int | None = None,
    keep: Path | None = None,
    progress: Progress | None = None,
) -> RealRun:
    """Run a job on a device, in a child process.

    ``free_before`` is what ``watched`` said of the device; the memory snapshot is kept where it is asked for (CUDA
    only).
    """
    place = "cpu" if facts.kind == "cpu" else f"cuda:{facts.index}"
    arguments = (spec, place, limits, free_before, keep)
    return run_isolated(_run_in_child, *arguments, timeout=limits.timeout, progress=progress)


def check_room(prediction: JobPrediction, facts: DeviceFacts) -> None:
    """Refuse a run that would not fit: it could take a shared machine down with it.

    Raises:
        UsageError: The upper end of the prediction, or on CUDA the model on the host, exceeds what is free.
    """
    estimate = prediction.estimate
    needed, free = estimate.peak.high_bytes, facts.free_bytes
    hint = "give a smaller batch or model, or --force to run it all the same"
    if facts.kind == "cpu":
        needed += PROCESS_BYTES
    if needed > free:
        what = f"the run would need up to {format_bytes(needed)}, and {facts.name} has {format_bytes(free)} free"
        raise UsageError(what, hint=hint)
    # Models are built on the host, in fp32 unless they say otherwise.
    built = 4 * estimate.parameters + PROCESS_BYTES
    if built > facts.host_free_bytes:
        what = (
            f"building the model takes about {format_bytes(built)} of host memory, "
            f"and {format_bytes(facts.host_free_bytes)} is free"
        )
        raise UsageError(what, hint=hint)


def put_together(facts: DeviceFacts, note: str, prediction: JobPrediction, run: RealRun) -> Validation:
    """Compare a prediction with its run."""
    peak, is_cpu = prediction.estimate.peak, facts.kind == "cpu"
    predicted = Peaks(peak.requested_bytes)
    if not is_cpu:
        predicted = Peaks(peak.requested_bytes, peak.allocated_bytes, peak.reserved_bytes, peak.device_bytes)
    stream = run.measured.stream
    return Validation(
        device=facts,
        profile_note=note,
        estimate=prediction.estimate,
        predicted=predicted,
        run=run,
        alignment=None
        if stream is None
        else compare(prediction.stream, stream, ignored_bytes=SCALAR_BYTES if is_cpu else 0),
    )


def _facts_in_child(device: str) -> DeviceFacts:
    from memplan.validate.device import facts_here

    return facts_here(device)


def _predict_in_child(spec: JobSpec, profile: GpuProfile, steps: int | None) -> JobPrediction:
    from memplan.job.child import progress
    from memplan.measure.collector import never_collect
    from memplan.validate.predict import predict_here

    never_collect()
    return predict_here(spec, profile, steps=steps, progress=progress)


def _run_in_child(spec: JobSpec, place: str, limits: Limits, free_before: int | None, keep: Path | None) -> RealRun:
    from memplan.job.child import progress
    from memplan.validate.run import run_here

    return run_here(
        spec,
        device=place,
        steps=limits.steps,
        traced_steps=limits.traced_steps,
        seconds=limits.seconds,
        free_before=free_before,
        keep=keep,
        progress=progress,
    )
