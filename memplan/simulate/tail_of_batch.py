"""The library call: how likely runs of drawn lengths run out of memory at the largest batch, and at smaller ones."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.measure.cache import Cache
from memplan.measure.compose import estimate
from memplan.plan.batch.records import BatchAnswer, BatchTail
from memplan.simulate.tail import TailPlan
from memplan.simulate.tail_of_job import at_longest, with_tails

SMALLER = 16
"""Of a batch that runs out one smaller by this part of it is tried next."""
MOST_TRIED = 4
"""Batches whose runs are drawn: each takes as many traces as an estimate does."""


def batches_with_tails(
    answers: Sequence[BatchAnswer],
    spec: JobSpec,
    profiles: Sequence[GpuProfile],
    plan: TailPlan,
    *,
    lengths: str,
    timeout: float,
    cache: Cache | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[BatchAnswer, ...]:
    """Add the chance of running out to the largest batches of the longest length that can be drawn.

    Fragmentation may fill a card whose longest step alone fits it: then smaller batches are tried, until no run that is
    drawn runs out or ``MOST_TRIED`` were tried.

    Args:
        answers: One for each profile, of the job ``at_longest``.
        spec: The job.
        profiles: Devices.
        plan: The drawn steps.
        lengths: Where their lengths come from, as typed.
        timeout: Seconds that one trace may take.
        cache: Where traces are found and kept; None: nowhere.
        progress: Told in a few words what happens now.

    Raises:
        UsageError: Nothing in the step depends on the length.
        EstimateError: User code fails or hangs, or its steps do not repeat.
    """

    def at(value: int, profile: GpuProfile) -> BatchTail:
        job = replace(spec, batch_size=value)
        results = estimate(at_longest(job, plan), [profile], timeout=timeout, cache=cache, progress=progress)
        (found,) = with_tails(
            results, job, [profile], plan, lengths=lengths, timeout=timeout, cache=cache, progress=progress
        )
        return BatchTail(value=value, risk=found.estimate.tail)

    def tried(answer: BatchAnswer, profile: GpuProfile) -> Iterator[BatchTail]:
        value = answer.value
        for _ in range(MOST_TRIED):
            if value < 1:
                return
            yield (tail := at(value, profile))
            if tail.risk is None or not tail.risk.chance:
                return
            value -= max(1, value // SMALLER)

    return tuple(
        replace(answer, tails=tuple(tried(answer, profile))) for answer, profile in zip(answers, profiles, strict=True)
    )
