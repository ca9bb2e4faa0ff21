"""Estimates that tests ask for: made as the gate makes them, with its cache."""

from collections.abc import Mapping
from pathlib import Path

from memplan.errors import EstimateError, UsageError
from memplan.gate.run import Task, run
from memplan.hardware.catalog import load_profile
from memplan.measure.cache import Cache
from memplan.measure.records import Estimate, Verdict
from memplan.project.keywords import read_options
from memplan.project.records import ProjectJob
from memplan.pytest_plugin import words
from memplan.pytest_plugin.records import Figure, Made, MarkerLimit


class OverLimitError(Exception):
    """A test's estimate needs more than the test allows; the sentence says by how much and why."""


def estimate(job: ProjectJob, cache: Cache | None) -> Estimate:
    """Estimate a job on its one GPU.

    Raises:
        MemplanError: As ``memplan.measure.compose.estimate``; also where the verdict is UNKNOWN.
    """
    [answer] = run([Task(job=job, profiles=(load_profile(job.gpus[0]),))], at_once=1, cache=cache)
    if answer.error is not None:
        raise answer.error
    [found] = answer.estimates
    if found.verdict is Verdict.UNKNOWN:
        raise EstimateError(f"no figure: {'; '.join(found.not_modelled) or 'the step could not be modelled'}")
    return found


class Estimates:
    """The estimates of one test."""

    def __init__(
        self,
        *,
        test: str,
        file: Path,
        limits: list[MarkerLimit],
        cache: Cache | None,
        previous: Mapping[str, int],
        fail_on_increase: bool,
    ) -> None:
        self._test, self._file, self._limits, self._cache = test, file, limits, cache
        self._previous, self._fail_on_increase = previous, fail_on_increase
        self.figures: list[Figure] = []
        """Of all estimates so far."""

    def of_markers(self) -> None:
        """Make the estimates that markers ask for by themselves.

        Raises:
            OverLimitError: One needs too much.
        """
        for limit in self._limits:
            if limit.job is not None:
                self._make(limit.job, limit)

    def __call__(self, target: str, *, gpu: str | None = None, **options: object) -> Estimate:
        """Estimate a target, held against the limit that a marker sets; the fixture ``memplan_estimate``.

        Args:
            target: As ``memplan estimate`` takes it; paths begin at pytest's root.
            gpu: Profile; without it the marker's.
            options: Of the job, called as in ``JobSpec`` and written as in a project file; the marker's are defaults.

        Raises:
            UsageError: Something is wrong with it.
            OverLimitError: It needs too much.
        """
        limits = [limit for limit in self._limits if limit.job is None]
        if gpu is None and not any(limit.gpu for limit in limits):
            raise UsageError("no gpu is named", hint='memplan_estimate(target, gpu="h100-80g"), or in the marker')
        wanted = load_profile(gpu).name if gpu is not None else next(each.gpu for each in limits if each.gpu)
        limit = next((each for each in limits if each.gpu in (None, wanted)), None)
        defaults = limit.options if limit is not None else {}
        return self._make(read_options(target, str(wanted), {**defaults, **options}, self._file), limit)

    def _make(self, job: ProjectJob, limit: MarkerLimit | None) -> Estimate:
        made = self._made(job, limit)
        self.figures.append(made.figure)
        if limit is not None and (sentence := words.over_limit(made.estimate, limit, made.figure)) is not None:
            raise OverLimitError(sentence)
        if self._fail_on_increase and made.figure.grown > 0:
            raise OverLimitError(words.grown(made.estimate, made.figure))
        return made.estimate

    def _made(self, job: ProjectJob, limit: MarkerLimit | None) -> Made:
        found = estimate(job, self._cache)
        key = f"{self._test}#{len(self.figures) + 1}" if self.figures else self._test
        bounds = [found.gpu.usable_bytes] if found.gpu.usable_bytes else []
        bounds += [limit.bytes] if limit is not None and limit.bytes is not None else []
        figure = Figure(
            key=key,
            target=found.target,
            gpu=found.gpu.name,
            verdict=found.verdict.value,
            device_bytes=found.peak.device_bytes,
            limit_bytes=min(bounds) if limit is not None and bounds else None,
            previous_bytes=self._previous.get(key),
        )
        return Made(estimate=found, figure=figure)
