"""The library call: estimates with the chance that drawn lengths run out of memory. User code runs in a child."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from memplan.hardware.profile import GpuProfile
from memplan.job.isolate import run_isolated
from memplan.job.spec import JobSpec
from memplan.measure.allocator import given_policy, in_force
from memplan.measure.cache import Cache
from memplan.measure.records import Estimate, RecordedEstimate, TailRisk, Verdict
from memplan.simulate.coverage import MOST_TRACES
from memplan.simulate.lengths import Listed, draw, possible
from memplan.simulate.tail import Tail, TailPlan

DRAWN_LENGTHS = 1000
"""Lengths that are drawn to choose those that are traced."""


def at_longest(spec: JobSpec, plan: TailPlan) -> JobSpec:
    """Return the job whose every step is the worst that can be drawn."""
    return replace(spec, seq_len=possible(plan.distribution)[-1])


def with_tails(
    results: Sequence[RecordedEstimate],
    spec: JobSpec,
    profiles: Sequence[GpuProfile],
    plan: TailPlan,
    *,
    lengths: str,
    alloc_conf: str = "",
    timeout: float,
    cache: Cache | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[RecordedEstimate, ...]:
    """Add how likely a run of drawn lengths runs out of memory to estimates of the longest.

    Args:
        results: One for each profile, of the job ``at_longest``.
        spec: The job.
        profiles: Devices.
        plan: The drawn steps.
        lengths: Where their lengths come from, as typed.
        alloc_conf: The allocator's options.
        timeout: Seconds that one trace may take.
        cache: Where traces are found and kept; None: nowhere.
        progress: Told in a few words what happens now.

    Raises:
        UsageError: Nothing in the step depends on the length.
        EstimateError: User code fails or hangs, or its steps do not repeat.
    """
    folder = cache.folder if cache is not None else None

    def completed(result: RecordedEstimate, profile: GpuProfile) -> RecordedEstimate:
        if result.estimate.verdict is Verdict.UNKNOWN:
            return result
        asked = spec, profile, plan, alloc_conf
        risk = run_isolated(
            _in_child, asked, lengths, result.estimate, folder, timeout=MOST_TRACES * timeout, progress=progress
        )
        return replace(result, estimate=replace(result.estimate, tail=risk))

    return tuple(map(completed, results, profiles))


def _in_child(
    asked: tuple[JobSpec, GpuProfile, TailPlan, str], lengths: str, estimate: Estimate, folder: Path | None
) -> TailRisk:
    from memplan.job.child import progress
    from memplan.measure.collector import never_collect

    never_collect()
    spec, profile, plan, alloc_conf = asked
    tail, assumptions = tail_of(spec, profile, plan, alloc_conf, folder=folder, progress=progress)
    progress(f"drawing runs of {plan.steps} steps")
    return risk_of(tail, estimate, lengths, assumptions)


def tail_of(
    spec: JobSpec,
    profile: GpuProfile,
    plan: TailPlan,
    alloc_conf: str = "",
    *,
    folder: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Tail, tuple[str, ...]]:
    """Trace a job at as many lengths as it takes; return its drawn runs, and what was assumed on the way."""
    from memplan.measure.kept_traces import kept_traces
    from memplan.simulate.from_job import LengthPlan, trace_workload

    source = random.Random(plan.seed)  # noqa: S311 - to be repeatable, nothing here is a secret.
    every = possible(plan.distribution)
    drawn = (draw(plan.distribution, source) for _ in range(DRAWN_LENGTHS))
    lengths = Listed(lengths=(every[0], every[-1], *drawn))
    wanted = LengthPlan(distribution=lengths, steps=len(lengths.lengths), seed=plan.seed)
    workload = trace_workload(spec, profile, wanted, kept=kept_traces(folder), progress=progress)
    policy = in_force(given_policy(alloc_conf), workload.alloc_conf, profile)
    tail = Tail(workload=workload, plan=plan, policy=policy, device_bytes=profile.total_bytes or None)
    return tail, workload.assumptions


def risk_of(tail: Tail, estimate: Estimate, lengths: str, assumptions: Sequence[str]) -> TailRisk:
    """Put the answer together."""
    peak, context = estimate.peak, estimate.breakdown["context"]
    usable = estimate.gpu.usable_bytes
    chance = tail.chance(usable - context)
    # A peak that is higher by some factor fills a device that is smaller by it.
    roomy, narrow = (int(usable * peak.device_bytes / end) - context for end in (peak.low_bytes, peak.high_bytes))
    return TailRisk(
        lengths=lengths,
        longest=possible(tail.plan.distribution)[-1],
        steps=tail.plan.steps,
        seed=tail.plan.seed,
        chance=chance.chance,
        low_chance=chance.low,
        high_chance=chance.high,
        least_chance=min(tail.chance_of_steps(roomy), chance.low),
        most_chance=max(tail.chance(narrow).high, chance.high),
        device_bytes=max(tail.most_reserved(), chance.most) + context,
        runs=chance.runs,
        played_steps=chance.steps,
        assumptions=tuple(line for line in assumptions if line not in estimate.assumptions),
    )
