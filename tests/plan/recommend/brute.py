"""A small job whose whole space is traced, and searches that are answered from those traces."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from unittest.mock import patch

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.plan.recommend import flow
from memplan.plan.recommend.bases import bases
from memplan.plan.recommend.certificate import key_of
from memplan.plan.recommend.evaluate import Evaluation, evaluate_here, not_traced
from memplan.plan.recommend.records import Candidate, Evaluated, Recommendation, Search, StepLimits
from memplan.plan.recommend.space import allowed, changes_for, combine, is_allowed

Traced = Mapping[str, Evaluation]
"""Key of a way → what its trace says."""


def trace_all(spec: JobSpec, profile: GpuProfile, search: Search) -> Traced:
    """Trace every way that a search may take."""
    given = bases(spec, search)[0]
    first = evaluate_here(given, profile, StepLimits())
    mine = [each for each in changes_for(spec, search, experts=first.experts) if allowed(each, search)]
    ways = [each.candidate for each in combine(given, mine, search)]
    may = [each for each in ways if is_allowed(each, given, search, batch_statistics=first.batch_statistics)]
    return {key_of(each): evaluate_here(each, profile, StepLimits()) for each in may}


def judged(traced: Traced, limit: int) -> Traced:
    """The same on a device with so many bytes."""

    def on_it(outcome: Evaluation) -> Evaluation:
        found = outcome.evaluated
        if found is None:
            return outcome
        fits = found.high_bytes <= limit
        return replace(outcome, evaluated=replace(found, fits=fits, reason="" if fits else "too large"))

    return {key: on_it(outcome) for key, outcome in traced.items()}


def evaluated(traced: Traced) -> list[Evaluated]:
    """Every way that can be, the fastest first."""
    found = [each.evaluated for each in traced.values() if each.evaluated is not None]
    return sorted(found, key=lambda each: each.time.total)


def look_up(
    traced: Traced,
    spec: JobSpec,
    profile: GpuProfile,
    search: Search,
    *,
    told: Callable[[Candidate], None] = lambda _: None,
) -> Recommendation:
    """Search, with every trace looked up; what is not in the space (single changes) cannot be traced.

    Args:
        traced: The space.
        spec: The job as given.
        profile: The device.
        search: What is asked.
        told: Called with each way before it is looked up.
    """

    class LookedUp:
        processes = 2

        def __init__(self, *_: object, **__: object) -> None:
            """Take what ``Workers`` takes."""

        def run(self, candidates: Sequence[Candidate], *_: object, **__: object) -> Iterator[Evaluation]:
            for each in candidates:
                told(each)
                known = traced.get(key_of(each))
                yield _renamed(known, each) if known is not None else not_traced(each, "not in the space")

        def abandon(self) -> None:
            """Nothing runs."""

    with patch.object(flow, "Workers", LookedUp):
        return flow.search_here(spec, profile, search, timeout=60.0)


def _renamed(outcome: Evaluation, candidate: Candidate) -> Evaluation:
    """The same outcome of a way that is made in other words."""
    found = outcome.evaluated
    named = None if found is None else replace(found, candidate=candidate)
    return replace(outcome, candidate=candidate, evaluated=named)
