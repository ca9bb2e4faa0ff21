"""The whole path in one process: load, trace, order, replay, and compose the answer. Runs in the child."""

import time
from collections.abc import Callable, Sequence
from functools import partial

from memplan.estimate.answer import Measured, compose
from memplan.estimate.records import Estimate
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.lifetime.build import build_lifetimes
from memplan.lifetime.records import Lifetimes
from memplan.replay.cpu import NoCaching
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.replay import Policy, replay, replay_steps
from memplan.replay.stream import request_stream
from memplan.trace.records import DeviceTraits


def estimate_here(
    spec: JobSpec, profiles: Sequence[GpuProfile], *, progress: Callable[[str], None] = lambda _: None
) -> tuple[Estimate, ...]:
    """Estimate one job on several devices, tracing once for each kind of device that changes the step.

    Args:
        spec: The job.
        profiles: Devices, in the order of the answers.
        progress: Told what happens now.

    Raises:
        MemplanError: As for its stages.
    """
    lifetimes: dict[DeviceTraits, Lifetimes] = {}
    answers = []
    for profile in profiles:
        traits = DeviceTraits.of(profile)
        if traits not in lifetimes:
            lifetimes[traits] = _lifetimes(spec, traits, progress)
        progress(f"replaying on {profile.name}")
        answers.append(compose(spec, profile, measure(lifetimes[traits], profile)))
    return tuple(answers)


def _lifetimes(spec: JobSpec, traits: DeviceTraits, progress: Callable[[str], None]) -> Lifetimes:
    from memplan.job.load import load_source
    from memplan.trace.run import trace_job

    return build_lifetimes(trace_job(partial(load_source, spec), spec, traits, progress=progress))


def measure(lifetimes: Lifetimes, profile: GpuProfile) -> Measured:
    """Replay a trace's allocations on a device's allocator until its state repeats."""
    started = time.perf_counter()
    policy: Policy = NoCaching() if profile.kind == "cpu" else AllocatorPolicy()
    stream = request_stream(lifetimes.trace)
    if stream.closes:
        memory = replay_steps(stream.prefix, stream.step, stream.rename, policy=policy)
    else:
        memory = replay(stream.prefix, policy=policy)
    return Measured(
        lifetimes=lifetimes,
        stream=stream,
        memory=memory,
        replay_seconds=time.perf_counter() - started,
    )
