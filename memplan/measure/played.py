"""A trace on a device: its allocations played on the device's allocator until the allocator's state repeats."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from memplan.hardware.profile import GpuProfile
from memplan.lifetime.build import build_lifetimes
from memplan.lifetime.records import Lifetimes
from memplan.measure.allocator import in_force
from memplan.measure.context import context_of
from memplan.measure.jitter import NO_JITTER, jitter
from memplan.measure.measured import Measured
from memplan.replay.cpu import NoCaching
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import MemoryProfile
from memplan.replay.replay import replay, replay_steps
from memplan.replay.stream import RequestStream, as_run, request_stream, resized
from memplan.tracing.records import Trace
from memplan.units import Bytes


def play_on_device(
    lifetimes: Lifetimes, profile: GpuProfile, given: AllocatorPolicy | None = None, *, rank: int = 0
) -> Measured:
    """Replay a trace's allocations on a device's allocator until its state repeats.

    Where no options are given, those that the target has itself are in force. Blocks that streams share come back as
    late as the host can know of it: a device that is the slower one of the two is behind. Where the segments would
    outgrow the device, they are replayed once more under its limit: the allocator then gives cached segments back and
    tries again, which is slow but may well fit.
    """
    started = time.perf_counter()
    policy = in_force(given, lifetimes.trace.alloc_conf, profile)
    traced, late = lifetimes, as_run(lifetimes.trace)
    at_once = request_stream(traced.trace) if late is not traced.trace else None
    lifetimes = build_lifetimes(late) if at_once else traced
    stream = request_stream(late)
    repeats = _repeats(lifetimes.trace, stream)
    profile = context_of(profile, lifetimes.trace)
    play = partial(_replay, profile=profile, policy=policy, repeats=repeats)
    unlimited = memory = play(stream)
    limit = profile.usable_bytes - profile.context_bytes
    # What is asked for at once fits in no cache that could be given back.
    if profile.usable_bytes and memory.peak_requested <= limit < memory.peak_reserved:
        limited = play(stream, limit_bytes=limit)
        memory = memory if limited.out_of_memory else limited
    least, needed, most = _ends(stream, memory, lifetimes.trace, play)
    otherwise = (at_once, play(at_once)) if at_once else None
    return Measured(
        lifetimes=lifetimes,
        traced=traced,
        stream=stream,
        memory=memory,
        allocated=min(memory.peak_allocated, otherwise[1].peak_allocated) if otherwise else memory.peak_allocated,
        least=least,
        needed=needed,
        most=most,
        jitter=jitter(stream, unlimited, partial(play, while_it_grows=True), otherwise),
        policy=policy,
        rank=rank,
        replay_seconds=time.perf_counter() - started,
    )


def play_idle(measured: Measured, profile: GpuProfile) -> Measured:
    """Replay a job whose optimizers never step: what its updates allocate, states among it, is nothing."""
    trace = measured.lifetimes.trace
    nothing = {
        storage.id: 0
        for storage in trace.storages
        if storage.most_bytes is not None or trace.ops[storage.birth].phase == "optimizer"
    }

    def idle(stream: RequestStream) -> MemoryProfile:
        return _replay(stream, context_of(profile, trace), measured.policy, repeats=_repeats(trace, stream))

    stream = resized(measured.stream, nothing)
    memory = at_once = idle(stream)
    if measured.traced is not measured.lifetimes:
        at_once = idle(resized(request_stream(measured.traced.trace), nothing))
    return replace(
        measured,
        stream=stream,
        memory=memory,
        allocated=at_once.peak_allocated,
        least=memory,
        needed=memory,
        most=memory,
        jitter=NO_JITTER,
    )


def reserved_under(policy: AllocatorPolicy, measured: Measured, profile: GpuProfile) -> Bytes:
    """Return the reserved peak of the same allocations under other options of the allocator."""
    repeats = _repeats(measured.lifetimes.trace, measured.stream)
    return Bytes(_replay(measured.stream, profile, policy, repeats=repeats).peak_reserved)


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
    while_it_grows: bool = False,
) -> MemoryProfile:
    kind = NoCaching() if profile.kind == "cpu" else policy
    total = profile.total_bytes or None
    if not repeats:
        return replay(
            (*stream.prefix, *stream.step),
            policy=kind,
            limit_bytes=limit_bytes,
            device_bytes=total,
            turns=stream.turns,
        )
    return replay_steps(
        stream.prefix,
        stream.step,
        stream.rename,
        policy=kind,
        limit_bytes=limit_bytes,
        device_bytes=total,
        turns=stream.turns,
        while_it_grows=while_it_grows,
    )
