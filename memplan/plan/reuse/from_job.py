"""A job's last traced step as a placement problem. Runs in the child: user code is executed."""

from collections.abc import Callable, Mapping, Sequence

from memplan.errors import EstimateError
from memplan.hardware.profile import GpuProfile
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.lifetime.records import Lifetimes
from memplan.measure.answer import options
from memplan.measure.kept_traces import KeptTraces
from memplan.measure.measurer import measuring
from memplan.measure.played import play_on_device
from memplan.plan.reuse.answer_records import Gathered, StepContext
from memplan.plan.reuse.from_requests import ALIGNMENT, stretch_of
from memplan.replay.records import Request
from memplan.replay.stream import RequestStream, device_requests
from memplan.runtime.arena.records import CPU_ALIGNMENT
from memplan.tracing.records import Trace
from memplan.units import StorageId


def gather_job(
    spec: JobSpec,
    profile: GpuProfile,
    capacity: int | None = None,
    *,
    load: Callable[[], ModelSource] | None = None,
    kept: KeptTraces | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Gathered:
    """Trace a job and make a problem of what its last step allocates and frees.

    Raises:
        MemplanError: As tracing does; or the step allocates nothing.
    """
    with measuring(load=load, kept=kept, progress=progress) as measurer:
        # Of a pipeline the first stage.
        lifetimes = measurer.lifetimes(spec, profile)
        progress(f"replaying on {profile.name}")
        measured = play_on_device(lifetimes, profile)
    trace = lifetimes.trace
    alignment = CPU_ALIGNMENT if profile.kind == "cpu" else ALIGNMENT
    before, step, heirs = _last_step(trace, measured.stream)
    stretch = stretch_of(before, step, heirs=heirs, alignment=alignment, capacity=capacity)
    if not stretch.problem.buffers:
        raise EstimateError("the step allocates nothing that it frees again: there is nothing to place")
    keys = [StorageId(key) for key in stretch.keys]
    return Gathered(
        problem=stretch.problem,
        surroundings=StepContext(
            device=profile.name,
            labels=tuple(str(lifetimes.buffers[key].category) for key in keys),
            owners=tuple(_owner(lifetimes, key) for key in keys),
            repetitions=stretch.repetitions,
            persistent_bytes=stretch.persistent_bytes,
            outside_bytes=stretch.outside_bytes,
            reserved_bytes=measured.memory.peak_reserved,
            step=_words(spec, trace),
            options=options(spec, trace),
            assumptions=(*trace.assumptions, *_on_repetitions(stretch.repetitions)),
        ),
    )


def _last_step(
    trace: Trace, stream: RequestStream
) -> tuple[Sequence[Request], Sequence[Request], Mapping[int, int] | None]:
    """Return what leads to the last step, the step, and who takes whose place; None where the step does not close."""
    if stream.closes:
        return stream.prefix, stream.step, stream.rename
    step = trace.steps[-1]
    before, inside = trace.events[: step.first_event], trace.events[step.first_event : step.end_event]
    return device_requests(trace, before), device_requests(trace, inside), None


def _owner(lifetimes: Lifetimes, storage: StorageId) -> str:
    buffer, ops = lifetimes.buffers[storage], lifetimes.trace.ops
    name = lifetimes.trace.storages[storage].name or (ops[buffer.start].name if buffer.start < len(ops) else "")
    return f"{buffer.module} {name}".strip()


def _on_repetitions(repetitions: int) -> tuple[str, ...]:
    if repetitions == 1:
        return ()
    return (f"the plan is of {repetitions} steps in a row: what one leaves to the next takes turns in several places",)


def _words(spec: JobSpec, trace: Trace) -> str:
    """``train · batch 8 x seq 2048 · bf16``."""
    if isinstance(spec.target, ScriptTarget):
        return spec.mode
    samples = f"batch {spec.batch_size}" if trace.seq_len is None else f"batch {spec.batch_size} x seq {trace.seq_len}"
    return " · ".join([spec.mode, samples, spec.precision])
