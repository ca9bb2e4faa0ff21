"""The first jobs of a project: each is traced before it is written down, with a budget from its own peak."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memplan.errors import MemplanError, several
from memplan.gate.compare import with_figures
from memplan.gate.judge import budget
from memplan.gate.run import Answer, Task, run
from memplan.hardware.profile import GpuProfile, all_have
from memplan.job.side_by_side import processors
from memplan.measure.cache import Cache
from memplan.measure.records import Estimate, Verdict
from memplan.project.job import JobSurroundings, read_job
from memplan.project.records import ProjectJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """What may become a job, traced."""

    keys: Mapping[str, Any]
    """Its table, with its budget; as found where it has no figure."""
    estimates: tuple[Estimate, ...] = ()
    """One for each GPU; none where it cannot be traced."""
    problem: str = ""
    """Why it cannot be; empty where it can."""


def adopt(
    tables: Sequence[Mapping[str, Any]],
    profiles: Sequence[GpuProfile],
    *,
    cache: Cache | None,
    progress: Callable[[str], None] | None = None,
) -> tuple[Adopted, ...]:
    """Trace what may become jobs, as the gate will.

    The cache keeps the figures for the gate.

    Returns:
        One for each table, in order.
    """
    jobs = [_read(table, profiles) for table in tables]
    tasks = [Task(job=job, profiles=tuple(profiles)) for job in jobs if isinstance(job, ProjectJob)]
    answers = iter(run(tasks, at_once=processors(), cache=cache, progress=progress) if tasks else ())
    return tuple(
        _adopted(table, next(answers)) if isinstance(job, ProjectJob) else Adopted(keys=table, problem=str(job))
        for table, job in zip(tables, jobs, strict=True)
    )


def _read(table: Mapping[str, Any], profiles: Sequence[GpuProfile]) -> ProjectJob | MemplanError:
    around = JobSurroundings(
        file=Path("memplan.toml"),
        defaults={"gpus": tuple(profile.name for profile in profiles)},
        winning={},
        gpus_of=lambda name: (name,),
        has_bfloat16=lambda _: all_have(profiles, "bfloat16"),
    )
    job, problems = read_job(table, around, 1)
    return several(problems) if job is None else job


def _adopted(table: Mapping[str, Any], answer: Answer) -> Adopted:
    if answer.error is not None:
        return Adopted(keys=table, problem=str(answer.error))
    missing = next((estimate for estimate in answer.estimates if with_figures(estimate) is None), None)
    if missing is not None:
        return Adopted(keys=table, problem="; ".join(missing.not_modelled))
    return Adopted(keys={**table, **_budget(answer.estimates)}, estimates=answer.estimates)


def _budget(estimates: Iterable[Estimate]) -> dict[str, str]:
    """A ``max-peak`` for all GPUs; where the job does not fit one, that GPU is the limit already."""
    found = list(estimates)
    if any(estimate.verdict is not Verdict.FITS for estimate in found):
        return {}
    return {"max-peak": budget(max(found, key=lambda estimate: estimate.peak.high_bytes))}
