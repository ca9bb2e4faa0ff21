"""The history behind an estimate: its replay once more, written down, digested, or both."""

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.measure.context import context_of
from memplan.measure.digest import Digester
from memplan.measure.digest_records import HistoryDigest
from memplan.measure.measured import Measured
from memplan.replay.allocator import make_allocator
from memplan.replay.cpu import NoCaching
from memplan.replay.script import ReplayScript, repetitions_to_peak
from memplan.snapshot.recording import DeviceRates, EventWriter
from memplan.snapshot.records import Snapshot


def recorded(
    spec: JobSpec, profile: GpuProfile, measured: Measured, *, whole: bool
) -> tuple[Snapshot | None, HistoryDigest]:
    """Record what was measured: a history, if it is asked for, and a digest, whose peaks are the measured ones.

    The job's precision decides how fast the device computes, for the history's clock.
    """
    memory = measured.memory
    # Only a replay under the device's limit can have given its cache back.
    context = context_of(profile, measured.lifetimes.trace).context_bytes
    limit = profile.usable_bytes - context if memory.retries else None
    policy = NoCaching() if profile.kind == "cpu" else measured.policy
    script = ReplayScript(measured.lifetimes, measured.stream, repetitions_to_peak(measured.stream, memory))
    allocator = make_allocator(policy, limit_bytes=limit, device_bytes=profile.total_bytes or None)
    digester = Digester(script, allocator, memory.peak_at)
    recorder = EventWriter(script, _rates(spec, profile)) if whole else None
    player = script.play(allocator, (digester, recorder) if recorder is not None else (digester,))
    return recorder.snapshot(player, policy, limit) if recorder is not None else None, digester.digest()


def _rates(spec: JobSpec, profile: GpuProfile) -> DeviceRates | None:
    flops = profile.peak_flops.get(spec.precision.removesuffix("-mixed"))
    if not flops or not profile.memory_bandwidth:
        return None
    return DeviceRates(flops=flops, bandwidth=profile.memory_bandwidth)
