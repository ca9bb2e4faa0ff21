"""The GPU profile for the device at hand: found by its name, by its likeness, or made from what the driver says."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from memplan.errors import UsageError
from memplan.hardware.catalog import list_profiles, load_profile, normalise
from memplan.hardware.profile import GpuProfile
from memplan.units import MIB
from memplan.validate.records import DeviceFacts

LIKE_MEMORY = 0.1
"""Share by which the total memory of a device may differ from that of a profile of its likeness."""
OVERHEAD = 16 * MIB
"""Device memory that no process gets (hardware_profiles/h200.toml, source of usable_bytes)."""
CONTEXT = 512 * MIB
"""Context of an unknown card: the shipped profiles range from 250 to 700 MiB."""
LARGE_WORKSPACE, SMALL_WORKSPACE = 32 * MIB, 8_519_680
"""ATen/cuda/CublasHandlePool.cpp parseChosenWorkspaceSize: capability 9, 10 and 12; all others."""
LARGE_WORKSPACE_MAJORS = frozenset({9, 10, 12})


def profile_for(facts: DeviceFacts, *, profile_dirs: Sequence[Path] = ()) -> tuple[GpuProfile, str]:
    """The profile to predict with, and in a few words where it came from.

    What the driver knows (memory, multiprocessors, capability) always comes from the driver: it decides kernels'
    scratch, and cards of one name differ.
    """
    if facts.kind == "cpu":
        return load_profile("cpu", profile_dirs=profile_dirs), "profile cpu"
    found, by_name = find_profile(facts, profile_dirs=profile_dirs)
    if found is None:
        return made_profile(facts), "made from the driver's figures: no profile is like this device"
    how = "by its name" if by_name else "the most like it"
    return _refined(found, facts), f"profile {found.name}, {how}"


def find_profile(facts: DeviceFacts, *, profile_dirs: Sequence[Path] = ()) -> tuple[GpuProfile | None, bool]:
    """The profile of a CUDA device as it stands in its file, and whether its name led there; None: none is like it."""
    try:
        found = load_profile(facts.name, profile_dirs=profile_dirs)
    except UsageError:
        found = None
    # One name may stand for several sizes of memory ("NVIDIA A100-SXM4").
    if found is not None and _is_like(found, facts):
        return found, True
    alike = [profile for profile in list_profiles(profile_dirs=profile_dirs) if _is_like(profile, facts)]
    return min(alike, key=lambda profile: _distance(profile, facts), default=None), False


def _is_like(profile: GpuProfile, facts: DeviceFacts) -> bool:
    return (
        profile.kind == "cuda"
        and profile.compute_capability == facts.capability
        and abs(profile.total_bytes - facts.total_bytes) <= LIKE_MEMORY * facts.total_bytes
    )


def _distance(profile: GpuProfile, facts: DeviceFacts) -> tuple[int, int, int]:
    words, named = set(normalise(facts.name).split("-")), set(normalise(profile.name).split("-"))
    return (
        -len(words & named),
        abs(profile.sm_count - facts.sm_count),
        abs(profile.total_bytes - facts.total_bytes),
    )


def _refined(profile: GpuProfile, facts: DeviceFacts) -> GpuProfile:
    lost = max(profile.total_bytes - profile.usable_bytes, 0)
    return dataclasses.replace(
        profile,
        total_bytes=facts.total_bytes,
        usable_bytes=facts.total_bytes - lost,
        compute_capability=facts.capability,
        sm_count=facts.sm_count or profile.sm_count,
        threads_per_sm=facts.threads_per_sm or profile.threads_per_sm,
    )


def made_profile(facts: DeviceFacts) -> GpuProfile:
    """A profile of what the driver says, for a device that is like none known; rates are not known (0)."""
    source = f"{facts.name} by its driver"
    major = facts.capability[0] if facts.capability else 0
    return GpuProfile(
        name=normalise(facts.name),
        title=facts.name,
        kind="cuda",
        total_bytes=facts.total_bytes,
        usable_bytes=facts.total_bytes - OVERHEAD,
        context_bytes=CONTEXT,
        cublas_workspace_bytes=LARGE_WORKSPACE if major in LARGE_WORKSPACE_MAJORS else SMALL_WORKSPACE,
        compute_capability=facts.capability,
        sm_count=facts.sm_count,
        threads_per_sm=facts.threads_per_sm,
        memory_bandwidth=0.0,
        peak_flops={},
        host_link_bandwidth=0.0,
        peer_link_bandwidth=0.0,
        sources={"total_bytes": source, "sm_count": source, "threads_per_sm": source, "compute_capability": source},
    )
