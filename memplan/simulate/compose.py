"""The library call: a job or a snapshot under all policies. User code runs in a child process, policies in others.

What if nothing of a step outlived it? A loss, an output or a batch that a variable holds lies in the next one's way::

    as it is     step │▒▒▒▒▒▒▒▒ output ████│██████ ▒▒▒▒  next step: the old output is freed when the new takes its name
    del output   step │▒▒▒▒▒▒▒▒ output ████│▒▒▒▒▒▒▒▒▒▒  next step
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from memplan.hardware.profile import GpuProfile
from memplan.job.isolate import run_isolated
from memplan.job.side_by_side import side_by_side
from memplan.job.spec import JobSpec
from memplan.measure.cache import Cache
from memplan.measure.records import GpuFacts
from memplan.simulate.coverage import MOST_TRACES
from memplan.simulate.family import Families, Family
from memplan.simulate.lengths import Distribution, Fixed
from memplan.simulate.policies import Policy, all_policies, name_of, run_policy
from memplan.simulate.recommend import microseconds, recommend
from memplan.simulate.records import PolicyRun, Simulation, Workload
from memplan.versions import installed

DEFAULT_STEPS = 1000
"""Steps where nobody says how many: fragmentation has long shown itself by then."""
DEFAULT_COMPACT_AT = 0.2
"""Share of free memory at which the compacting policy compacts where nobody says."""
DEFAULT_TIMEOUT = 600.0
"""Seconds until a job that hangs is given up."""
_DAY = 86_400.0
"""Seconds that a policy may take: it is memplan's own code, and a long simulation is no error."""
_THE_JOBS_OWN = Fixed(length=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is simulated beside the job itself."""

    steps: int = DEFAULT_STEPS
    """Optimizer steps, or repetitions of a snapshot's history."""
    lengths: Distribution = _THE_JOBS_OWN
    """How long each step's sequences are; no matter for a snapshot."""
    seed: int = 0
    """Of the drawn lengths."""
    confs: tuple[str, ...] = ()
    """Values of ``PYTORCH_CUDA_ALLOC_CONF`` to compare, beside those that always are."""
    buckets: tuple[int, ...] = ()
    """Block sizes of the bucketed pool, ascending; empty fits them."""
    compact_at: float = DEFAULT_COMPACT_AT
    """Share of free memory at which the compacting policy compacts."""


def simulate(
    source: JobSpec | Path,
    profile: GpuProfile | None,
    scenario: Scenario,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    cache: Cache | None = None,
    progress: Callable[[str], None] | None = None,
) -> Simulation:
    """Play the same steps under every policy.

    Args:
        source: A job, or the path of a CUDA memory snapshot whose history is one step.
        profile: The device; a snapshot does without, and then nothing limits it.
        scenario: Steps, lengths and policies.
        timeout: Seconds that one run of the job's code may take.
        cache: Where traces of unchanged jobs are found and kept; None: nowhere.
        progress: Told in a few words what happens now.

    Raises:
        UsageError: The target or an option is wrong.
        EstimateError: User code fails or hangs, or its steps do not repeat.
    """
    tell = progress or (lambda _: None)
    workload = _workload(source, profile, scenario, timeout=timeout, cache=cache, progress=tell)
    policies = all_policies(scenario.confs, scenario.buckets, scenario.compact_at)
    runs = _run_all(policies, workload, profile, tell)
    costs = {run.name: microseconds(run.calls) for run in runs}
    best, passed = recommend(runs, costs), passed_bytes(workload)
    freed: tuple[PolicyRun, ...] = ()
    if best is not None and passed:
        chosen = [policy for policy in policies if name_of(policy) == best.policy]
        freed = _run_all(chosen, without_leftovers(workload), profile, tell)
    return Simulation(
        workload=workload,
        gpu=GpuFacts.of(profile) if profile is not None else None,
        seed=scenario.seed,
        policies=runs,
        recommendation=best,
        passed_bytes=passed,
        without_leftovers=freed[0] if freed else None,
        microseconds=costs,
        memplan_version=installed("memplan"),
    )


def _workload(
    source: JobSpec | Path,
    profile: GpuProfile | None,
    scenario: Scenario,
    *,
    timeout: float,
    cache: Cache | None,
    progress: Callable[[str], None],
) -> Workload:
    if isinstance(source, Path):
        from memplan.simulate.from_snapshot import snapshot_workload

        progress("reading the snapshot")
        return snapshot_workload(source, scenario.steps)
    assert profile is not None  # noqa: S101 - a job is traced for some device.
    traces = 1 if isinstance(scenario.lengths, Fixed) else MOST_TRACES + 1
    folder = cache.folder if cache is not None else None
    return run_isolated(_trace_in_child, source, profile, scenario, folder, timeout=traces * timeout, progress=progress)


def _trace_in_child(spec: JobSpec, profile: GpuProfile, scenario: Scenario, folder: Path | None) -> Workload:
    from memplan.job.child import progress
    from memplan.measure.collector import never_collect
    from memplan.measure.kept_traces import kept_traces
    from memplan.simulate.from_job import LengthPlan, trace_workload

    never_collect()
    plan = LengthPlan(distribution=scenario.lengths, steps=scenario.steps, seed=scenario.seed)
    return trace_workload(spec, profile, plan, kept=kept_traces(folder), progress=progress)


def _run_all(
    policies: Sequence[Policy], workload: Workload, profile: GpuProfile | None, progress: Callable[[str], None]
) -> tuple[PolicyRun, ...]:
    """Every policy in a process of its own."""

    def told(running: Sequence[Policy]) -> None:
        done = len(policies) - len(running)
        steps = f"simulating {len(policies)} policies over {len(workload.lengths)} steps"
        progress(f"simulated {done} of {len(policies)} policies" if done else steps)

    return side_by_side(partial(_play, workload=workload, profile=profile), policies, told=told)


def _play(policy: Policy, *, workload: Workload, profile: GpuProfile | None) -> PolicyRun:
    return run_isolated(run_policy, policy, workload, profile, timeout=_DAY)


def passed_bytes(workload: Workload) -> int:
    """Most bytes that any step leaves for the next."""
    most = 0
    for length in {min(workload.lengths), max(workload.lengths)}:
        family, fitting = workload.families.of(length)
        sizes = family.sizes_at(fitting)
        most = max(most, sum(sizes[carried.size] for carried in family.carried))
    return most


def without_leftovers(workload: Workload) -> Workload:
    """The same steps, each freeing first what the one before left."""
    members = tuple(_freed_first(family) for family in workload.families.members)
    return dataclasses.replace(workload, families=Families(members=members))


def _freed_first(family: Family) -> Family:
    entering = {carried.enters for carried in family.carried}
    frees = [call for call in family.step if call.is_free and call.key in entering]
    rest = (call for call in family.step if not (call.is_free and call.key in entering))
    return dataclasses.replace(family, step=(*frees, *rest))
