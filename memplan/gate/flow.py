"""The gate's whole path: run the jobs, compare them with the baseline, judge them, and make the baseline anew.

An estimate looks for changes that make a job fit its GPU. Of a job that fits, but is over a budget, nothing is known:
it is estimated once more on a GPU whose usable memory is the budget, and that estimate's advice is taken.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from memplan.findings.records import Place
from memplan.gate.baseline import accepted, update
from memplan.gate.compare import compare_figures
from memplan.gate.judge import Case, judge, limits, outcome
from memplan.gate.place import Places, relative
from memplan.gate.records import GateResult, Row
from memplan.gate.run import Answer, Task, run
from memplan.gate.saved import Entries
from memplan.hardware.catalog import load_profile
from memplan.hardware.profile import GpuProfile
from memplan.job.as_loaded import ORIGIN
from memplan.measure.cache import Cache
from memplan.measure.digest_records import HistoryDigest
from memplan.measure.records import Estimate
from memplan.project.records import Project, ProjectJob


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """How the gate is run."""

    at_once: int
    """Processes at most."""
    cache: Cache | None = None
    """Where unchanged jobs are found; None: nowhere."""
    update_baseline: bool = False
    """Write the figures of what passes into the baseline."""
    whole: bool = True
    """Is it all of the project's jobs?"""
    timelines: bool = False
    """Keep the digest of every replay, for a page?"""


def gate(project: Project, asked: GateOptions, progress: Callable[[str], None] | None = None) -> GateResult:
    """Run and judge the jobs of a project: a row for every job and GPU.

    Raises:
        UsageError: A GPU or the baseline is not to be had, or the baseline cannot be written.
    """
    began = time.perf_counter()
    entries = accepted(project, update=asked.update_baseline)
    run_all = partial(run, at_once=asked.at_once, cache=asked.cache, progress=progress)
    answers = run_all([replace(task, timelines=asked.timelines) for task in tasks_of(project)])
    judged = [each for answer in answers for each in _judged(answer, project, entries, asked)]
    rows = tuple(map(_row, with_advice(judged, run_all)))
    notes = [*_notes(project, rows, entries, asked)]
    if asked.update_baseline and project.baseline is not None:
        notes.append(update(project.baseline, rows))
    return GateResult(
        project=project.file,
        rows=rows,
        baseline=project.baseline if entries is not None else None,
        notes=tuple(notes),
        seconds=time.perf_counter() - began,
        digests={key: digest for answer in answers for key, digest in _digests(answer)},
    )


def tasks_of(project: Project) -> list[Task]:
    """What there is to run.

    Raises:
        UsageError: There is no such GPU.
    """
    return [Task(job=job, profiles=_profiles(job, project)) for job in project.jobs]


def _profiles(job: ProjectJob, project: Project) -> tuple[GpuProfile, ...]:
    found = [load_profile(name, profile_dirs=project.profile_dirs) for name in job.gpus]
    return tuple({profile.name: profile for profile in found}.values())


def _judged(answer: Answer, project: Project, entries: Entries | None, asked: GateOptions) -> Iterator[Judged]:
    job, folder = answer.task.job, project.file.resolve().parent
    places = Places(folder=folder, table=Place(file=relative(project.file, folder), line=job.line))
    largest = max((each.peak.high_bytes for each in answer.estimates), default=0)
    for index, profile in enumerate(answer.task.profiles):
        estimate = answer.estimates[index] if answer.estimates else None
        before = (entries or {}).get((job.name, profile.name))
        case = Case(
            job=job.name,
            policy=job.policy,
            places=places,
            estimate=estimate,
            error=answer.error,
            comparison=compare_figures(before, estimate),
            has_baseline=entries is not None,
            needs_most=estimate is not None and estimate.peak.high_bytes == largest,
            accepts_growth=asked.update_baseline,
        )
        yield Judged(case=case, job=job, profile=profile, cached=answer.cached)


def _digests(answer: Answer) -> Iterator[tuple[tuple[str, str], HistoryDigest]]:
    for profile, digest in zip(answer.task.profiles, answer.digests, strict=False):
        if digest is not None:
            yield (answer.task.job.name, profile.name), digest


def _row(judged: Judged) -> Row:
    case = judged.case
    findings = judge(case)
    return Row(
        job=case.job,
        gpu=judged.profile.name,
        outcome=outcome(case, findings),
        estimate=case.estimate,
        comparison=case.comparison,
        findings=findings,
        limit=min((limit.bytes for limit in limits(case)), default=None),
        informational=case.policy.informational,
        cached=judged.cached,
    )


def _notes(project: Project, rows: Sequence[Row], entries: Entries | None, asked: GateOptions) -> Iterator[str]:
    yield from dict.fromkeys(f"{job.name}: {note}" for job in project.jobs for note in job.notes)
    if project.baseline is not None and entries is None and not asked.update_baseline:
        yield f"there is no baseline '{project.baseline}' yet: memplan gate --update-baseline makes it"
    names = {job.name for job in project.jobs}
    stale = sorted({job for job, _ in entries or {}} - names) if asked.whole else []
    if stale:
        yield f"the baseline has figures of jobs that are gone: {', '.join(stale)}"
    compared = [row.comparison for row in rows if row.comparison]
    pairs = {(each.before.torch_version, each.after.torch_version) for each in compared}
    for before, after in sorted(pair for pair in pairs if _release(pair[0]) != _release(pair[1])):
        yield f"the baseline was made with torch {before}, this is {after}: growth may come from there"
    for row in rows:
        if row.comparison and (newer := newer_defaults(row.comparison.before, row.comparison.after)):
            what = f"{row.job}: the baseline was made under older defaults; now {' and '.join(newer)} by themselves"
            yield f"{what}: growth may come from there"


def newer_defaults(before: Estimate, after: Estimate) -> list[str]:
    """Options that nobody chose, then or now, and that stand for something else now (``job.as_loaded``)."""
    origins = ((field, before.provenance.get(field), after.provenance.get(field, "")) for field in after.options)
    return [f"{field} is {after.options[field]}" for field, then, now in origins if then == "default" and _chosen(now)]


def _chosen(origin: str) -> bool:
    return origin.startswith(ORIGIN)


def _release(version: str) -> str:
    """A version without what says how it was built, ``+cpu``."""
    return version.partition("+")[0]


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
