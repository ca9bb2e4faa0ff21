"""The whole path in one process: load, trace, order, replay, and compose the answer. Runs in the child."""

import dataclasses
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from memplan.errors import EstimateError
from memplan.hardware.profile import GpuProfile
from memplan.job.load import load_source
from memplan.job.spec import JobSpec
from memplan.job.usercode import forgotten_modules
from memplan.lifetime.build import build_lifetimes
from memplan.lifetime.records import Lifetimes
from memplan.measure.advice import advise
from memplan.measure.answer import Measured, compose, unknown
from memplan.measure.digest import digest
from memplan.measure.digest_records import HistoryDigest
from memplan.measure.history import history
from memplan.measure.jitter import jitter
from memplan.measure.records import Estimate, RecordedEstimate, Verdict
from memplan.replay.conf import not_modelled, parse_conf
from memplan.replay.cpu import NoCaching
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import MemoryProfile
from memplan.replay.replay import Policy, replay, replay_steps
from memplan.replay.stream import RequestStream, request_stream, resized
from memplan.snapshot.records import Snapshot
from memplan.tracing.decisions import Way
from memplan.tracing.records import DeviceTraits, Trace
from memplan.tracing.run import trace_job
from memplan.tracing.sharding.ranks import ranks_to_trace
from memplan.tracing.sharding.zero.settings import is_zero
from memplan.units import format_bytes

DEFAULT_POLICY = AllocatorPolicy()
"""PyTorch's own options."""
MOST_OPS_OF_ADVICE = 300_000
"""Ops traced for advice, about a minute of them, after which no further change is tried; counted instead of seconds, so
that the same job gets the same answer on any machine."""
NOT_ALL_TRIED = "not every change that could make it fit was tried: each takes as long as the estimate itself"


def estimate_here(
    spec: JobSpec,
    profiles: Sequence[GpuProfile],
    *,
    advice: bool = True,
    alloc_conf: str = "",
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Estimate, ...]:
    """Estimate one job on several devices, tracing once for each kind of device that changes the step.

    Args:
        spec: The job.
        profiles: Devices, in the order of the answers.
        advice: Look for changes that make it fit, where it does not? Each costs a trace.
        alloc_conf: Value of ``PYTORCH_CUDA_ALLOC_CONF``; empty for PyTorch's defaults.
        progress: Told what happens now.

    Raises:
        MemplanError: As for its stages.
    """
    return _estimates(_Tracer(progress, alloc_conf), spec, profiles, advice=advice)


def record_here(
    spec: JobSpec,
    profiles: Sequence[GpuProfile],
    *,
    alloc_conf: str = "",
    whole: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[RecordedEstimate, ...]:
    """Estimate one job on several devices, and keep the history of every replay and its digest.

    Args:
        spec: The job.
        profiles: Devices, in the order of the answers.
        alloc_conf: Value of ``PYTORCH_CUDA_ALLOC_CONF``; empty for PyTorch's defaults.
        whole: Keep the history itself too, or only the digest?
        progress: Told what happens now.

    Raises:
        MemplanError: As for its stages.
    """
    tracer = _Tracer(progress, alloc_conf)
    estimates = _estimates(tracer, spec, profiles, advice=True)
    known = [estimate.verdict is not Verdict.UNKNOWN for estimate in estimates]
    return tuple(
        RecordedEstimate(
            estimate=estimate,
            history=tracer.history(profile, spec) if whole and has_figures else None,
            digest=tracer.digest(profile, spec) if has_figures else None,
        )
        for profile, estimate, has_figures in zip(profiles, estimates, known, strict=True)
    )


@contextmanager
def _imports_not_walked() -> Iterator[None]:
    """Spare the garbage collector what has been imported: a walk of torch takes as long as a third of a small trace."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@_imports_not_walked()
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
            answer = tracer.advised(profile, spec, answer)
        answers.append(answer)
    if len(failed) == len(profiles):
        # What fails everywhere is the job's fault and no device's.
        raise failed[0]
    return tuple(answers)


class _Tracer:
    """Traces each rank that differs of each job once for each kind of device, and remembers."""

    def __init__(self, progress: Callable[[str], None], alloc_conf: str = "") -> None:
        self._progress = progress
        self._conf = alloc_conf
        self._policy = parse_conf(alloc_conf)
        self._lifetimes: dict[tuple[str, DeviceTraits, int, Way], Lifetimes] = {}
        self._ops = 0
        """Ops traced so far."""

    def estimate(self, profile: GpuProfile, spec: JobSpec) -> Estimate:
        """The answer of the rank that needs most."""
        rank, measured = self._largest(profile, spec)
        answer = compose(spec, profile, measured)
        said = (*_on_ranks(spec, rank), *_on_allocator(spec, profile, measured, self._conf))
        left_out = not_modelled(self._conf) + (NCCL if spec.parallel.ranks > 1 and profile.kind != "cpu" else ())
        return dataclasses.replace(
            answer, assumptions=answer.assumptions + said, not_modelled=answer.not_modelled + left_out
        )

    def advised(self, profile: GpuProfile, spec: JobSpec, answer: Estimate) -> Estimate:
        """The answer with changes that make the job fit, as far as they can be tried within ``MOST_OPS_OF_ADVICE``."""
        most, said = self._ops + MOST_OPS_OF_ADVICE, set[str]()

        def attempt(changed: JobSpec) -> Estimate:
            if self._ops >= most:
                said.add(NOT_ALL_TRIED)
                raise EstimateError(NOT_ALL_TRIED)
            return self.estimate(profile, changed)

        found = advise(spec, answer, attempt, "fp16" if "bfloat16" in profile.lacks else "bf16")
        return dataclasses.replace(answer, advice=found, assumptions=(*answer.assumptions, *said))

    def history(self, profile: GpuProfile, spec: JobSpec) -> Snapshot:
        _, measured = self._largest(profile, spec)
        self._progress(f"writing down the replay on {profile.name}")
        return history(spec, profile, measured)

    def digest(self, profile: GpuProfile, spec: JobSpec) -> HistoryDigest:
        _, measured = self._largest(profile, spec)
        return digest(profile, measured)

    def _largest(self, profile: GpuProfile, spec: JobSpec) -> tuple[int, Measured]:
        measured: dict[int, Measured] = {}
        for rank in ranks_to_trace(spec.parallel):
            lifetimes = self._trace(profile, spec, rank)
            self._progress(f"replaying on {profile.name}")
            measured[rank] = measure(lifetimes, profile, self._policy)
            measured[rank] = self._with_other_ways(profile, spec, rank, measured[rank])
        rank = max(measured, key=lambda each: measured[each].memory.peak_reserved)
        return rank, measured[rank]

    def _with_other_ways(self, profile: GpuProfile, spec: JobSpec, rank: int, measured: Measured) -> Measured:
        """With what the job takes where what nobody knows of its data turns out otherwise."""
        otherwise: list[Measured] = []
        untraced: list[str] = []
        for way in measured.lifetimes.trace.unsure:
            try:
                lifetimes = self._trace(profile, spec, rank, way)
            except EstimateError as error:
                # Either the program cannot take that way, or memplan cannot follow it there: nobody knows which.
                untraced.append(f"another way that the program may go could not be traced: {_in_short(error)}")
                continue
            otherwise.append(measure(lifetimes, profile, self._policy))
        return dataclasses.replace(measured, otherwise=tuple(otherwise), untraced=tuple(dict.fromkeys(untraced)))

    def _trace(self, profile: GpuProfile, spec: JobSpec, rank: int, way: Way = "likely") -> Lifetimes:
        traits = DeviceTraits.of(profile)
        if is_zero(spec.parallel) and profile.total_bytes:
            # DeepSpeed looks how much is free, and flattens weights on the host where it is too little.
            traits = dataclasses.replace(traits, total_bytes=profile.total_bytes)
        key = repr(spec), traits, rank, way
        if key not in self._lifetimes:
            if self._lifetimes:
                # Garbage of the trace before goes; what then lives stays to the end, and is not walked again.
                gc.collect()
                gc.freeze()
            with forgotten_modules():
                load = partial(load_source, spec)
                trace = trace_job(load, spec, traits, rank=rank, way=way, progress=self._progress)
            self._ops += len(trace.ops)
            self._lifetimes[key] = build_lifetimes(trace)
        return self._lifetimes[key]


def _in_short(error: EstimateError) -> str:
    first = error.what.partition("\n")[0]
    return f"{first} ({error.where})" if error.where else first


NCCL = ("NCCL's buffers: outside of PyTorch's allocator, hundreds of MiB for each communicator",)


def _on_ranks(spec: JobSpec, rank: int) -> tuple[str, ...]:
    count = len(ranks_to_trace(spec.parallel))
    return (f"rank {rank} needs most of the {count} ranks that differ",) if count > 1 else ()


def _on_allocator(spec: JobSpec, profile: GpuProfile, measured: Measured, conf: str) -> tuple[str, ...]:
    """The other mode of the allocator, where nobody said which: with streams it decides some percent of the peak."""
    if conf or spec.parallel.ranks == 1 or profile.kind == "cpu":
        return ()
    expandable = AllocatorPolicy(expandable_segments=True)
    memory = _replay(measured.stream, profile, expandable, repeats=_repeats(measured.lifetimes.trace, measured.stream))
    reserved = f"{format_bytes(memory.peak_reserved)} instead of {format_bytes(measured.memory.peak_reserved)}"
    return (f"the allocator's options are PyTorch's own; under expandable_segments:True it reserves {reserved}",)


def measure(lifetimes: Lifetimes, profile: GpuProfile, policy: AllocatorPolicy = DEFAULT_POLICY) -> Measured:
    """Replay a trace's allocations on a device's allocator until its state repeats.

    Where the segments would outgrow the device, they are replayed once more under its limit: the allocator then gives
    cached segments back and tries again, which is slow but may well fit.

    Args:
        lifetimes: The trace.
        profile: The device.
        policy: Options of its allocator.
    """
    started = time.perf_counter()
    stream = request_stream(lifetimes.trace)
    repeats = _repeats(lifetimes.trace, stream)
    play = partial(_replay, profile=profile, policy=policy, repeats=repeats)
    unlimited = memory = play(stream)
    limit = profile.usable_bytes - profile.context_bytes
    if profile.usable_bytes and memory.peak_reserved > limit:
        limited = play(stream, limit_bytes=limit)
        memory = memory if limited.out_of_memory else limited
    least, needed, most = _ends(stream, memory, lifetimes.trace, play)
    return Measured(
        lifetimes=lifetimes,
        stream=stream,
        memory=memory,
        least=least,
        needed=needed,
        most=most,
        jitter=jitter(stream, unlimited, play),
        policy=policy,
        replay_seconds=time.perf_counter() - started,
    )


def _repeats(trace: Trace, stream: RequestStream) -> bool:
    """May the last step be repeated? One that grows must not: the answer is about the steps that were traced."""
    return stream.closes and trace.repeats


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
    stream: RequestStream,
    profile: GpuProfile,
    policy: AllocatorPolicy,
    *,
    repeats: bool,
    limit_bytes: int | None = None,
) -> MemoryProfile:
    kind: Policy = NoCaching() if profile.kind == "cpu" else policy
    total = profile.total_bytes or None
    if not repeats:
        return replay((*stream.prefix, *stream.step), policy=kind, limit_bytes=limit_bytes, device_bytes=total)
    return replay_steps(
        stream.prefix, stream.step, stream.rename, policy=kind, limit_bytes=limit_bytes, device_bytes=total
    )
