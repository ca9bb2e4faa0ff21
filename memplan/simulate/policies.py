"""The policies that are compared, and how each becomes an allocator for a workload."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from memplan.replay.allocator import make_caching
from memplan.replay.bucketed import BucketedAllocator
from memplan.replay.compacting import CompactingAllocator
from memplan.replay.conf import parse_conf
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.static_plan import PlannedAllocator
from memplan.simulate.buckets import fitted_buckets
from memplan.simulate.family import Family, Stretch
from memplan.simulate.play import Simulated
from memplan.simulate.records import Workload
from memplan.simulate.step_plan import plan_steps
from memplan.units import Bytes, format_bytes


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
