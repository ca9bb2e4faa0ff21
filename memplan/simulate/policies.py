"""The policies that are compared, how each becomes an allocator for a workload, and one over all of it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from memplan.hardware.profile import GpuProfile
from memplan.replay.allocator import make_caching
from memplan.replay.bucketed import BucketedAllocator
from memplan.replay.compacting import CompactingAllocator
from memplan.replay.conf import parse_conf
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.static_plan import PlannedAllocator
from memplan.simulate.buckets import fitted_buckets
from memplan.simulate.family import Family, Stretch
from memplan.simulate.play import Simulated, StepPlayer
from memplan.simulate.records import PolicyRun, Workload
from memplan.simulate.step_plan import plan_steps
from memplan.units import Bytes, format_bytes

HUGE = 1 << 42
"""Peaks beyond which an expandable segment needs more address space than is set aside for a device of unknown size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PyTorchPolicy:
    """What PyTorch does under an option."""

    name: str
    """What the report calls it."""
    conf: str
    """Value of ``PYTORCH_CUDA_ALLOC_CONF``."""
    note: str = ""
    """What to know before using it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPolicy:
    """A pool of fixed block sizes."""

    buckets: tuple[int, ...] = ()
    """Ascending; empty fits them to the stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactingPolicy:
    """Best fit with compaction."""

    compact_at: float
    """Share that must be free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPolicy:
    """Offsets assigned beforehand."""


Policy = PyTorchPolicy | BucketPolicy | CompactingPolicy | StaticPolicy

NATIVE = (
    PyTorchPolicy(name="native", conf=""),
    PyTorchPolicy(name="expandable", conf="expandable_segments:True"),
    PyTorchPolicy(name="power of two / 8", conf="roundup_power2_divisions:8"),
    PyTorchPolicy(name="max split 128 MiB", conf="max_split_size_mb:128"),
    PyTorchPolicy(
        name="large segm. 64 MiB",
        conf="large_segment_size_mb:64",
        note="an option of recent PyTorch: 2.13 has it, old versions refuse it",
    ),
)
"""What PyTorch can do that is always compared, with values that people use or PyTorch's documentation shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An empty allocator with what it needs to be told."""

    allocator: Simulated
    """Ready to be played to."""
    begin: Callable[[Family, Stretch], None] | None = None
    """Called before every stretch; None where the allocator does not care."""
    floor: Bytes | None = None
    """Static plan: the bound under its arena."""
    notes: tuple[str, ...] = ()
    """For the report."""


def all_policies(confs: Sequence[str], buckets: tuple[int, ...], compact_at: float) -> tuple[Policy, ...]:
    """Everything that is compared: PyTorch's own first, then what it cannot do."""
    compared: dict[object, PyTorchPolicy] = {}
    for policy in (*NATIVE, *(PyTorchPolicy(name=conf, conf=conf) for conf in confs)):
        # What is written otherwise may mean the same.
        compared.setdefault(parse_conf(policy.conf), policy)
    rest = BucketPolicy(buckets=buckets), CompactingPolicy(compact_at=compact_at), StaticPolicy()
    return (*compared.values(), *rest)


def name_of(policy: Policy) -> str:
    """What the report calls a policy."""
    match policy:
        case PyTorchPolicy(name=name):
            return name
        case BucketPolicy():
            return "size buckets"
        case CompactingPolicy():
            return "compacting"
        case StaticPolicy():
            return "static plan"
    assert_never(policy)


def prepare(policy: Policy, workload: Workload, *, limit_bytes: int | None, device_bytes: int | None) -> Prepared:
    """An empty allocator under a policy; some policies look at the workload, or the device's total, beforehand."""
    match policy:
        case PyTorchPolicy(conf=conf, note=note):
            allocator = make_caching(parse_conf(conf), limit_bytes=limit_bytes, device_bytes=device_bytes)
            return Prepared(allocator=allocator, notes=(note,) if note else ())
        case BucketPolicy(buckets=given):
            buckets = given or fitted_buckets(workload)
            note = f"{'given' if given else 'fitted'} buckets: {_listed(buckets)}"
            return Prepared(allocator=BucketedAllocator(buckets, limit_bytes=limit_bytes), notes=(note,))
        case CompactingPolicy(compact_at=compact_at):
            compacting = CompactingAllocator(compact_at=compact_at, limit_bytes=limit_bytes)
            return Prepared(allocator=compacting, notes=(COMPACTING,))
        case StaticPolicy():
            plan = plan_steps(workload)
            rest = None if limit_bytes is None else max(0, limit_bytes - plan.arena_bytes)
            expandable = AllocatorPolicy(expandable_segments=True)
            online = make_caching(expandable, limit_bytes=rest, device_bytes=device_bytes)
            planned = PlannedAllocator(online, arena_bytes=plan.arena_bytes, limit_bytes=limit_bytes)
            return Prepared(
                allocator=planned,
                begin=lambda _, stretch: planned.begin(plan.slots[stretch]),
                floor=Bytes(plan.floor),
                notes=(f"placed by {plan.ordering}", *plan.notes),
            )
    assert_never(policy)


COMPACTING = "PyTorch cannot move live blocks: compaction is a bound, and what it would cost"


def _listed(buckets: Sequence[int]) -> str:
    shown = [format_bytes(size) for size in buckets[:3]]
    return ", ".join(shown + ([f"… {format_bytes(buckets[-1])} ({len(buckets)})"] if len(buckets) > 3 else []))


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
