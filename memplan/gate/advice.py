"""What would bring a job back under its budget.

An estimate looks for changes that make a job fit its GPU. Of a job that fits, but is over a budget, nothing is known:
it is estimated once more on a GPU whose usable memory is the budget, and that estimate's advice is taken.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from memplan.gate.judge import Case, limits
from memplan.gate.run import Answer, Task
from memplan.hardware.profile import GpuProfile
from memplan.project.records import ProjectJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What becomes a row."""

    case: Case
    """What is judged."""
    job: ProjectJob
    """The job."""
    profile: GpuProfile
    """Its GPU."""
    cached: bool
    """Was nothing run?"""


def with_advice(judged: Iterable[Judged], run: Callable[[Sequence[Task]], Sequence[Answer]]) -> list[Judged]:
    """Give each job that is over a budget the changes that would keep it."""
    all_judged = list(judged)
    over = {index: limit for index, each in enumerate(all_judged) if (limit := _passed(each)) is not None}
    tasks = [_task(all_judged[index], limit) for index, limit in over.items()]
    for index, answer in zip(over, run(tasks), strict=True):
        all_judged[index] = _advised(all_judged[index], answer)
    return all_judged


def _passed(judged: Judged) -> int | None:
    """The least budget that a job is over; None where it keeps all, or where its GPU has no more than that."""
    case, estimate = judged.case, judged.case.estimate
    found = [limit for limit in limits(case) if not (limit.code == "MP006" and case.accepts_growth)]
    least = min((limit.bytes for limit in found), default=None)
    if estimate is None or least is None or estimate.peak.device_bytes <= least:
        return None
    # What does not even hold the context cannot be kept by any change.
    return least if judged.profile.context_bytes < least < (estimate.gpu.usable_bytes or least + 1) else None


def _task(judged: Judged, limit: int) -> Task:
    profile = judged.profile
    return Task(job=judged.job, profiles=(replace(profile, usable_bytes=limit),))


def _advised(judged: Judged, answer: Answer) -> Judged:
    case = judged.case
    if not answer.estimates or case.estimate is None:
        return judged
    estimate = replace(case.estimate, advice=answer.estimates[0].advice)
    comparison = replace(case.comparison, after=estimate) if case.comparison else None
    return replace(judged, case=replace(case, estimate=estimate, comparison=comparison))
