"""The whole path in one process: load, trace, order, replay, and compose the answer. Runs in the child."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial

from memplan.errors import EstimateError
from memplan.estimate.advice import advise
from memplan.estimate.answer import Measured, compose, unknown
from memplan.estimate.history import history
from memplan.estimate.records import Estimate, RecordedEstimate, Verdict
from memplan.hardware.profile import GpuProfile
from memplan.job.load import load_source
from memplan.job.spec import JobSpec
from memplan.job.usercode import forgotten_modules
from memplan.lifetime.build import build_lifetimes
from memplan.lifetime.records import Lifetimes
from memplan.replay.cpu import NoCaching
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import MemoryProfile
from memplan.replay.replay import Policy, replay, replay_steps
from memplan.replay.stream import RequestStream, request_stream, resized
from memplan.snapshot.records import Snapshot
from memplan.trace.records import DeviceTraits, Trace
from memplan.trace.run import trace_job


def estimate_here(
    spec: JobSpec,
    profiles: Sequence[GpuProfile],
    *,
    advice: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Estimate, ...]:
    """Estimate one job on several devices, tracing once for each kind of device that changes the step.

    Args:
        spec: The job.
        profiles: Devices, in the order of the answers.
        advice: Look for changes that make it fit, where it does not? Each costs a trace.
        progress: Told what happens now.

    Raises:
        MemplanError: As for its stages.
    """
    return _estimates(_Tracer(progress), spec, profiles, advice=advice)


def record_here(
    spec: JobSpec, profiles: Sequence[GpuProfile], *, progress: Callable[[str], None] = lambda _: None
) -> tuple[RecordedEstimate, ...]:
    """Estimate one job on several devices, and keep the history of every replay.

    Args:
        spec: The job.
        profiles: Devices, in the order of the answers.
        progress: Told what happens now.

    Raises:
        MemplanError: As for its stages.
    """
    tracer = _Tracer(progress)
    estimates = _estimates(tracer, spec, profiles, advice=True)
    return tuple(
        RecordedEstimate(
            estimate=estimate,
            history=None if estimate.verdict is Verdict.UNKNOWN else tracer.history(profile, spec),
        )
        for profile, estimate in zip(profiles, estimates, strict=True)
    )


def _estimates(
    tracer: "_Tracer", spec: JobSpec, profiles: Sequence[GpuProfile], *, advice: bool
) -> tuple[Estimate, ...]:
    answers: list[Estimate] = []
    failed: list[EstimateError] = []
    for profile in profiles:
        try:
            answer = tracer.estimate(profile, spec)
        except EstimateError as error:
            failed.append(error)
            answers.append(unknown(spec, profile, error))
            continue
        if advice:
            answer = dataclasses.replace(answer, advice=advise(spec, answer, partial(tracer.estimate, profile)))
        answers.append(answer)
    if len(failed) == len(profiles):
        # What fails everywhere is the job's fault and no device's.
        raise failed[0]
    return tuple(answers)


class _Tracer:
    """Traces each job once for each kind of device, and remembers."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self._lifetimes: dict[tuple[str, DeviceTraits], Lifetimes] = {}

    def estimate(self, profile: GpuProfile, spec: JobSpec) -> Estimate:
        lifetimes = self._trace(profile, spec)
        self._progress(f"replaying on {profile.name}")
        return compose(spec, profile, measure(lifetimes, profile))

    def history(self, profile: GpuProfile, spec: JobSpec) -> Snapshot:
        lifetimes = self._trace(profile, spec)
        self._progress(f"writing down the replay on {profile.name}")
        return history(spec, profile, measure(lifetimes, profile))

    def _trace(self, profile: GpuProfile, spec: JobSpec) -> Lifetimes:
        traits = DeviceTraits.of(profile)
        key = repr(spec), traits
        if key not in self._lifetimes:
            with forgotten_modules():
                trace = trace_job(partial(load_source, spec), spec, traits, progress=self._progress)
            self._lifetimes[key] = build_lifetimes(trace)
        return self._lifetimes[key]


def measure(lifetimes: Lifetimes, profile: GpuProfile) -> Measured:
    """Replay a trace's allocations on a device's allocator until its state repeats.

    Where the segments would outgrow the device, they are replayed once more under its limit: the allocator then gives
    cached segments back and tries again, which is slow but may well fit.
    """
    started = time.perf_counter()
    stream = request_stream(lifetimes.trace)
    # A step that grows must not be repeated: the answer is about the steps that were traced.
    repeats = stream.closes and lifetimes.trace.repeats
    memory = _replay(stream, profile, repeats=repeats, limit_bytes=None)
    limit = profile.usable_bytes - profile.context_bytes
    if profile.usable_bytes and memory.peak_reserved > limit:
        limited = _replay(stream, profile, repeats=repeats, limit_bytes=limit)
        memory = memory if limited.out_of_memory else limited
    least, needed, most = _ends(stream, memory, lifetimes.trace, partial(_replay, profile=profile, repeats=repeats))
    return Measured(
        lifetimes=lifetimes,
        stream=stream,
        memory=memory,
        least=least,
        needed=needed,
        most=most,
        replay_seconds=time.perf_counter() - started,
    )


def _ends(
    stream: RequestStream, likely: MemoryProfile, trace: Trace, play: Callable[[RequestStream], MemoryProfile]
) -> tuple[MemoryProfile, MemoryProfile, MemoryProfile]:
    """Replays of the least, the needed and the most where only closed libraries know what kernels take."""
    unsure = [storage for storage in trace.storages if storage.most_bytes is not None]
    if not unsure:
        return likely, likely, likely
    most = {storage.id: storage.most_bytes or 0 for storage in unsure}
    without = {storage.id: 0 for storage in unsure if storage.spare}
    sizes = (dict.fromkeys(most, 0), most | without, most)
    played: list[MemoryProfile] = []
    for index, each in enumerate(sizes):
        played.append(played[sizes.index(each)] if each in sizes[:index] else play(resized(stream, each)))
    return played[0], played[1], played[2]


def _replay(
    stream: RequestStream, profile: GpuProfile, *, repeats: bool, limit_bytes: int | None = None
) -> MemoryProfile:
    policy: Policy = NoCaching() if profile.kind == "cpu" else AllocatorPolicy()
    total = profile.total_bytes or None
    if not repeats:
        return replay((*stream.prefix, *stream.step), policy=policy, limit_bytes=limit_bytes, device_bytes=total)
    return replay_steps(
        stream.prefix, stream.step, stream.rename, policy=policy, limit_bytes=limit_bytes, device_bytes=total
    )
