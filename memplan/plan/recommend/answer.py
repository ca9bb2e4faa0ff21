"""From what was traced to the answer: ranked, compared, explained."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from memplan.findings.utilization import THRESHOLDS
from memplan.hardware.profile import GpuProfile
from memplan.job.target import format_target
from memplan.plan.batch.headroom import limit_of
from memplan.plan.batch.split import critical_batch
from memplan.plan.recommend.evaluate import Evaluation
from memplan.plan.recommend.records import (
    ALLOWABLE,
    UNREACHED,
    Candidate,
    Evaluated,
    Group,
    Recommendation,
    RecommendProof,
    Rejected,
    Remedy,
    Search,
    SingleChange,
)
from memplan.plan.recommend.space import is_allowed, wanting
from memplan.units import Bytes
from memplan.versions import installed

ASSUMED = (
    "seconds are by roofline, with what kernels and links are known to reach of nominal rates (docs/recommend.md); "
    "their order is more certain than they are"
)
TOO_SHORT = "its own trace takes longer than --time-limit"
"""Why nothing is known of the job as given."""
SPLIT = (
    "a batch split into micro-batches gives the same gradients only where the loss is a mean over samples: a loss "
    "that compares the samples of a batch with each other (in-batch negatives) sees those of one micro-batch"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOutcome:
    """Everything that the answer is made of."""

    given: Candidate
    """The job as given."""
    profile: GpuProfile
    """The device."""
    search: Search
    """What was asked."""
    outcomes: tuple[Evaluation, ...]
    """All that was traced, or could not be."""
    singles: tuple[Candidate, ...]
    """Single changes."""
    skipped: tuple[Rejected, ...]
    """What was not traced because it should not fit."""
    proof: RecommendProof
    """What is proved of all ways."""
    untraced: Candidate | None
    """Where nothing was found: what would be traced next."""
    interrupted: bool
    """Did the user end the search?"""
    seconds: float
    """Wall time."""
    batch_statistics: bool
    """Does the model compute with statistics of its micro-batch?"""

    def may_be_taken(self, candidate: Candidate) -> bool:
        """May a candidate be recommended?"""
        return is_allowed(candidate, self.given, self.search, batch_statistics=self.batch_statistics)

    def wanting(self, candidate: Candidate) -> tuple[Group, ...]:
        """Return what ``--allow`` would have to name besides for a candidate."""
        return wanting(candidate, self.given, self.search, batch_statistics=self.batch_statistics)


def compose_answer(findings: SearchOutcome) -> Recommendation:
    """Put the answer together."""
    traced = {repr(each.candidate.spec): each for each in findings.outcomes}
    given = traced[repr(findings.given.spec)]
    evaluated = [_with_cost(each.evaluated, given.evaluated, findings) for each in findings.outcomes if each.evaluated]
    same = [each for each in evaluated if each.candidate.global_batch == findings.given.global_batch]
    told = [each for each in same if findings.search.refusal(each.candidate.spec) is None]
    mine = [each for each in told if findings.may_be_taken(each.candidate)]
    rows = sorted((each for each in mine if each.fits), key=lambda each: (each.cost, len(each.candidate.changes)))
    remedies = () if rows else tuple(_remedies(told, findings))
    what_ifs = tuple(sorted(_what_ifs(findings, traced, given.evaluated), key=lambda each: -(each.saved_bytes or 0)))
    known = given if given.evaluated else next(each for each in findings.outcomes if each.evaluated is not None)
    shown = [each.candidate for each in (*rows, *(remedy.evaluated for remedy in remedies))]
    shown += [each.candidate for each in what_ifs if each.saved_bytes is not None]
    split = any(each.spec.batch_size != findings.given.spec.batch_size for each in shown)
    return replace(
        answer_without_traces(
            findings.given, findings.profile, findings.search, ways=findings.proof.ways, seconds=findings.seconds
        ),
        baseline=next((each for each in evaluated if each.candidate == findings.given), None),
        rows=tuple(rows),
        pareto=pareto(mine),
        what_ifs=what_ifs,
        rejected=(*_lost(same, findings), *findings.skipped),
        cheapest=_cheapest([*what_ifs, *(_what_if(each, findings, given.evaluated) for each in told)], given.evaluated),
        remedies=remedies,
        untraced=findings.untraced,
        ended="complete" if findings.proof.proved == findings.proof.ways else "budget",
        proof=findings.proof,
        interrupted=findings.interrupted,
        traces=len(evaluated),
        assumptions=(*known.assumptions, ASSUMED, *((SPLIT,) if split else ()), *_written(findings.search)),
        not_modelled=known.not_modelled,
        options=known.options,
        provenance=known.provenance,
        parameters=known.parameters,
        trainable_parameters=known.trainable_parameters,
    )


def _written(search: Search) -> Iterator[str]:
    if search.emitted:
        yield f"recommended is only what can be written: {', '.join(each.framework for each in search.emitted)}"


def answer_without_traces(
    given: Candidate, profile: GpuProfile, search: Search, *, ways: int, seconds: float
) -> Recommendation:
    """Return what is known before anything was traced: the answer, too, where the time was over by then."""
    preset = search.limits.utilization
    return Recommendation(
        target=format_target(given.spec.target),
        gpu=profile.name,
        gpu_title=profile.title,
        gpus=search.gpus,
        usable_bytes=Bytes(profile.usable_bytes),
        limit_bytes=Bytes(limit_of(profile, preset)),
        thresholds=THRESHOLDS[preset] if preset else None,
        global_batch=given.global_batch,
        baseline=None,
        rows=(),
        pareto=(),
        what_ifs=(),
        rejected=(Rejected(candidate=given, reason=TOO_SHORT, traced=False),),
        cheapest=None,
        remedies=(),
        untraced=None,
        critical=critical_batch(search.noise_scale, given.global_batch) if search.noise_scale else None,
        ended="budget",
        proof=RecommendProof(
            ending="not_found", ways=ways, proved=0, gap=None, least_bytes=None, is_least_reached=False,
            least_changes=None,
        ),
        interrupted=False,
        candidates=ways,
        traces=0,
        seconds=seconds,
        assumptions=(),
        not_modelled=(),
        options={},
        provenance=given.spec.provenance,
        parameters=0,
        trainable_parameters=0,
        torch_version=installed("torch"),
        memplan_version=installed("memplan"),
    )  # fmt: skip


def pareto(evaluated: Sequence[Evaluated]) -> tuple[Evaluated, ...]:
    """Return the Pareto front of device memory and throughput, least memory first."""
    front: list[Evaluated] = []
    for each in sorted(evaluated, key=lambda each: (each.device_bytes, -each.samples_per_second)):
        if not front or each.samples_per_second > front[-1].samples_per_second:
            front.append(each)
    return tuple(front)


def _with_cost(evaluated: Evaluated, given: Evaluated | None, findings: SearchOutcome) -> Evaluated:
    search, usable = findings.search, findings.profile.usable_bytes
    share = evaluated.device_bytes / (usable or evaluated.device_bytes)
    base = given.time.total if given is not None else evaluated.time.total
    return replace(evaluated, cost=search.alpha * share + search.beta * evaluated.time.total / base)


def _what_ifs(
    findings: SearchOutcome, traced: Mapping[str, Evaluation], given: Evaluated | None
) -> Iterator[SingleChange]:
    for candidate in findings.singles:
        outcome = traced.get(repr(candidate.spec))
        if outcome is None:
            yield _untold(candidate, findings, UNREACHED)
        elif outcome.evaluated is None:
            yield _untold(candidate, findings, outcome.reason)
        else:
            yield _what_if(replace(outcome.evaluated, candidate=candidate), findings, given)


def _what_if(found: Evaluated, findings: SearchOutcome, given: Evaluated | None) -> SingleChange:
    if given is None:
        return _untold(found.candidate, findings, "the job as given cannot be traced")
    return SingleChange(
        candidate=found.candidate,
        allowed=findings.may_be_taken(found.candidate),
        saved_bytes=given.device_bytes - found.device_bytes,
        extra_time=given.samples_per_second / found.samples_per_second - 1,
        fits=found.fits,
        reason="",
    )


def _untold(candidate: Candidate, findings: SearchOutcome, reason: str) -> SingleChange:
    permitted = findings.may_be_taken(candidate)
    return SingleChange(
        candidate=candidate, allowed=permitted, saved_bytes=None, extra_time=None, fits=False, reason=reason
    )


def _cheapest(found: Sequence[SingleChange], given: Evaluated | None) -> SingleChange | None:
    """Of what makes the job fit, the fewest changes, then the least time; what keeps the numerics before others."""
    if given is not None and given.fits:
        return None
    fitting = [each for each in found if each.fits]
    return min(
        fitting,
        key=lambda each: (not each.allowed, len(each.candidate.changes), each.extra_time or 0.0),
        default=None,
    )


def _remedies(evaluated: Sequence[Evaluated], findings: SearchOutcome) -> Iterator[Remedy]:
    """Of each set of things that would have to be allowed, the best that fits; the fewest and least intrusive first."""
    best: dict[tuple[Group, ...], Evaluated] = {}
    for each in sorted(evaluated, key=lambda each: each.cost):
        if each.fits:
            best.setdefault(findings.wanting(each.candidate), each)
    least = min(map(len, best), default=0)
    for groups in sorted(best, key=lambda groups: [ALLOWABLE.index(group) for group in groups]):
        if len(groups) == least:
            yield Remedy(allow=groups, evaluated=best[groups])


def _lost(evaluated: Sequence[Evaluated], findings: SearchOutcome) -> Iterator[Rejected]:
    for each in evaluated:
        if not each.fits:
            yield Rejected(candidate=each.candidate, reason=each.reason, traced=True)
        elif (refusal := findings.search.refusal(each.candidate.spec)) is not None:
            yield Rejected(candidate=each.candidate, reason=refusal.what, traced=True)
    for outcome in findings.outcomes:
        if outcome.evaluated is None:
            yield Rejected(candidate=outcome.candidate, reason=outcome.reason, traced=False)
