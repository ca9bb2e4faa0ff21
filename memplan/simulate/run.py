"""One policy over a whole workload: without a limit first, and under the device's where it would be passed."""

import time

from memplan.hardware.profile import GpuProfile
from memplan.simulate.play import StepPlayer
from memplan.simulate.policies import Policy, Prepared, PyTorchPolicy, name_of, prepare
from memplan.simulate.records import PolicyRun, Workload

HUGE = 1 << 42
"""Peaks beyond which an expandable segment needs more address space than is set aside for a device of unknown size."""


def run_policy(policy: Policy, workload: Workload, profile: GpuProfile | None = None) -> PolicyRun:
    """Simulate one policy.

    Where it would take more than the device has, it is played once more under the limit: the allocator then gives
    cached memory back and tries again, which may help. Where that fails too, the figures are those without a limit, and
    the result says in which step the device was full.

    Without a device, or on one without a limit, a policy never fails.
    """
    started = time.perf_counter()
    total = profile.total_bytes or None if profile is not None else None
    prepared, player = _play(policy, workload, limit_bytes=None, device_bytes=_address_space(workload, total))
    failure, failed_step, limited = None, None, False
    limit = profile.usable_bytes - profile.context_bytes if profile is not None and profile.usable_bytes else None
    if limit is not None and max(step.peak_reserved for step in player.steps) > limit:
        again, under_limit = _play(policy, workload, limit_bytes=limit, device_bytes=total)
        if under_limit.failure is None:
            prepared, player, limited = again, under_limit, True
        else:
            failure, failed_step = under_limit.failure, len(under_limit.steps) + 1
    return PolicyRun(
        name=name_of(policy),
        conf=policy.conf if isinstance(policy, PyTorchPolicy) else None,
        steps=tuple(player.steps),
        settled_at=player.settled_at,
        out_of_memory=failure,
        failed_step=failed_step,
        limited=limited,
        floor=prepared.floor,
        notes=prepared.notes,
        seconds=time.perf_counter() - started,
    )


def _play(
    policy: Policy, workload: Workload, *, limit_bytes: int | None, device_bytes: int | None
) -> tuple[Prepared, StepPlayer]:
    prepared = prepare(policy, workload, limit_bytes=limit_bytes, device_bytes=device_bytes)
    player = StepPlayer(prepared.allocator, prepared.begin)
    player.run(workload)
    return prepared, player


def _address_space(workload: Workload, total_bytes: int | None) -> int | None:
    """Device size to assume where there is no limit: larger than any step of the workload."""
    most = 0
    for length in {min(workload.lengths), max(workload.lengths)}:
        family, fitting = workload.families.of(length)
        sizes = family.sizes_at(fitting)
        most = max(most, sum(sizes[call.size] for stretch in family.stretches for call in stretch if not call.is_free))
    return most if most > HUGE else None if total_bytes is None else max(total_bytes, most)
