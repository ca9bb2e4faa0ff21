"""The history behind an estimate has the estimate's peaks, also where the allocator must give its cache back."""

from dataclasses import replace
from pathlib import Path

import pytest

from memplan.hardware.catalog import load_profile
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import FileTarget, JobSpec
from memplan.job.target import parse_target
from memplan.lifetime.records import Lifetimes
from memplan.measure.history import recorded
from memplan.measure.local import estimate_here, record_here
from memplan.measure.measured import Measured
from memplan.measure.played import play_on_device
from memplan.snapshot.records import DeviceSnapshot
from tests.snapshot.recorded_traces import small_step

pytestmark = pytest.mark.usefixtures("workspaces_stay")
MIB = 1 << 20
SPEC = JobSpec(target=FileTarget(path=Path("net.py")))


@pytest.fixture(scope="module")
def step() -> Lifetimes:
    return small_step()


def history(profile: GpuProfile, measured: Measured) -> DeviceSnapshot:
    snapshot, _ = recorded(SPEC, profile, measured, whole=True)
    (device,) = snapshot.devices
    return device


def reserved_peak(device: DeviceSnapshot) -> int:
    total = highest = 0
    for event in device.events:
        total += {"segment_alloc": event.nbytes, "segment_free": -event.nbytes}.get(event.action, 0)
        highest = max(highest, total)
    return highest


def small_device(step: Lifetimes) -> GpuProfile:
    """The largest device on which the step fits only because the cache is given back."""
    profile = load_profile("a100-80g")
    unlimited = play_on_device(step, profile).memory
    for limit in range(unlimited.peak_reserved - 2 * MIB, unlimited.peak_allocated, -2 * MIB):
        small = replace(profile, usable_bytes=profile.context_bytes + limit, total_bytes=profile.context_bytes + limit)
        if play_on_device(step, small).memory.retries:
            return small
    pytest.fail("this step never needs its cache back")


def test_a_step_that_needs_its_cache_back_is_recorded_doing_so(step: Lifetimes) -> None:
    profile = small_device(step)
    measured = play_on_device(step, profile)
    device = history(profile, measured)
    actions = [event.action for event in device.events]
    assert "segment_free" in actions
    assert "oom" not in actions
    assert reserved_peak(device) == measured.memory.peak_reserved <= profile.usable_bytes - profile.context_bytes


def test_a_step_that_does_not_fit_is_recorded_on_a_larger_device(step: Lifetimes) -> None:
    profile = load_profile("a100-80g")
    tiny = replace(profile, usable_bytes=profile.context_bytes + 4 * MIB, total_bytes=profile.context_bytes + 4 * MIB)
    measured = play_on_device(step, tiny)
    device = history(tiny, measured)
    assert reserved_peak(device) == measured.memory.peak_reserved > 4 * MIB


def test_faster_devices_take_less_time(step: Lifetimes) -> None:
    ends = []
    for gpu in ("h100-80g", "l4", "cpu"):
        profile = load_profile(gpu)
        device = history(profile, play_on_device(step, profile))
        ends.append(device.events[-1].microseconds - len(device.events))
    h100, l4, cpu = ends
    assert cpu < h100 < l4


def test_recording_changes_no_estimate(tmp_path: Path) -> None:
    target = tmp_path / "net.py"
    target.write_text("import torch\n\ndef model():\n    return torch.nn.Linear(8, 8)\n\n"
                      "def batch(batch_size):\n    return torch.randn(batch_size, 8)\n")  # fmt: skip
    spec = JobSpec(target=parse_target(str(target)), mode="inference")
    profiles = [load_profile("a100-80g")]
    (plain,), (kept,) = estimate_here(spec, profiles), record_here(spec, profiles)
    assert replace(kept.estimate, timings={}) == replace(plain, timings={})
    assert kept.history is not None
    (device,) = kept.history.devices
    assert reserved_peak(device) == plain.peak.reserved_bytes
