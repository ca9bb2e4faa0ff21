"""Is a job within its policy? Pure: a policy, an estimate and what it is compared with in, findings out.

Limits in bytes are on the device peak, and it is the point estimate that is held against them. The interval counts
for the verdict: ``fail-on = "oom"`` fails where the point estimate does not fit the GPU, ``"tight"`` also where the
upper end of the interval does not, ``"unknown"`` also where there is no figure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from memplan.errors import MemplanError
from memplan.findings.records import SEVERITIES, Finding, Place, Severity
from memplan.gate.place import Places
from memplan.gate.records import Comparison, Outcome
from memplan.measure.over import over
from memplan.measure.records import Advice, Estimate, Verdict
from memplan.project.records import Amount, Policy
from memplan.units import GIB, Bytes, format_bytes

LOOSE = 1.25
"""A limit this many times the upper end of the interval is told: size-limit's README has people take the current size
and a quarter more (github.com/ai/size-limit, "Set the limit")."""
_FAILING: dict[str, tuple[Verdict, ...]] = {
    "oom": (Verdict.OOM,),
    "tight": (Verdict.OOM, Verdict.TIGHT),
    "unknown": (Verdict.OOM, Verdict.TIGHT, Verdict.UNKNOWN),
}
"""``fail-on`` → verdicts that fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A bound on the device peak, out of a policy."""

    code: str
    """What is found where it is passed."""
    key: str
    """The policy's key that sets it."""
    bytes: Bytes
    """The device peak at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is judged: one job on one GPU."""

    job: str
    """Its name."""
    policy: Policy
    """What it may need."""
    places: Places
    """Where things are in its repository."""
    estimate: Estimate | None
    """None: it failed."""
    error: MemplanError | None = None
    """How."""
    comparison: Comparison | None = None
    """With the baseline."""
    has_baseline: bool = False
    """Is there anything to compare with?"""
    needs_most: bool = True
    """Is it the GPU on which the job needs most? What is advised of its budget must hold on all."""
    accepts_growth: bool = False
    """Is the baseline made anew, so that growth is what the user wants recorded?"""


def limits(case: Case) -> tuple[Limit, ...]:
    """The limits that a policy sets on a job that has figures."""
    policy, estimate = case.policy, case.estimate
    if estimate is None or estimate.verdict is Verdict.UNKNOWN:
        return ()
    found = []
    if policy.max_peak is not None:
        found.append(Limit(code="MP004", key="max-peak", bytes=policy.max_peak))
    usable = estimate.gpu.usable_bytes
    if policy.min_headroom is not None and usable:  # A CPU has no limit that room could be left below.
        room = policy.min_headroom.of(usable)
        found.append(Limit(code="MP005", key="min-headroom", bytes=Bytes(usable - room)))
    if policy.max_increase is not None and case.comparison is not None:
        before = case.comparison.before.peak.device_bytes
        allowed = Bytes(before + policy.max_increase.of(before))
        found.append(Limit(code="MP006", key="max-increase", bytes=allowed))
    return tuple(found)


def judge(case: Case) -> tuple[Finding, ...]:
    """Every rule that is not met, errors first."""
    if case.estimate is None or case.estimate.verdict is Verdict.UNKNOWN:
        return (_no_figure(case),)
    found = [*_verdict(case, case.estimate), *_over(case, case.estimate), *_fragmented(case, case.estimate)]
    found += _notes(case, case.estimate)
    return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


def outcome(case: Case, findings: tuple[Finding, ...]) -> Outcome:
    """What findings mean for a row."""
    if any(finding.severity == "error" for finding in findings):
        return "failed"
    has_figure = case.estimate is not None and case.estimate.verdict is not Verdict.UNKNOWN
    return "passed" if has_figure or case.policy.informational else "unknown"


def budget(estimate: Estimate) -> str:
    """A ``max-peak`` that the estimate keeps: the upper end of its interval, rounded up to a tenth of a GiB."""
    tenths = -(-10 * estimate.peak.high_bytes // GIB)
    return f"{tenths / 10:g}GiB"


def _no_figure(case: Case) -> Finding:
    reasons = case.estimate.not_modelled if case.estimate is not None else ()
    message, where, hint = (reasons[0] if reasons else "no figure"), None, None
    if case.error is not None:
        message, where, hint = case.error.what, case.error.where, case.error.hint
    fails = case.policy.fail_on == "unknown"
    return Finding(
        code="MP003",
        severity=_severity(case, fails=fails) if fails else "warning",
        message=message,
        place=case.places.of_source(where),
        fix=_with_message(case, hint or "", fails=fails),
    )


def _verdict(case: Case, estimate: Estimate) -> Iterator[Finding]:
    peak, usable = estimate.peak, estimate.gpu.usable_bytes
    fails = estimate.verdict in _FAILING[case.policy.fail_on]
    beyond = over(peak.device_bytes, peak.high_bytes, usable)
    match estimate.verdict:
        case Verdict.OOM:
            words = f"peak {format_bytes(peak.device_bytes)}, {beyond} the {format_bytes(usable)} usable"
        case Verdict.TIGHT if beyond:
            fits = " fits" if peak.device_bytes <= usable else ""
            words = f"peak {format_bytes(peak.device_bytes)}{fits}, {beyond} the {format_bytes(usable)} usable"
        case Verdict.TIGHT:
            words = f"peak {format_bytes(peak.device_bytes)} fits if the allocator gives its cache back"
        case _:
            return
    hint = _changes(estimate, usable) or ("memplan recommend looks for a setup that fits" if fails else "")
    yield Finding(
        code=estimate.verdict.code or "",
        severity=_severity(case, fails=fails),
        message=words,
        place=_place(case, estimate),
        fix=_with_message(case, hint, fails=fails),
    )


def _over(case: Case, estimate: Estimate) -> Iterator[Finding]:
    peak = estimate.peak.device_bytes
    for limit in limits(case):
        if peak <= limit.bytes:
            continue
        accepted = limit.code == "MP006" and case.accepts_growth
        raised = "lower" if limit.key == "min-headroom" else "raise"
        advice = _changes(estimate, limit.bytes)
        hint = f"{raised} {limit.key} of job {case.job} ({case.places.table.file}:{case.places.table.line})"
        hint += ", or accept it with --update-baseline" if limit.key == "max-increase" else ""
        yield Finding(
            code=limit.code,
            severity="note" if accepted else _severity(case, fails=True),
            message=_words(case, estimate, limit) + (": accepted as the new baseline" if accepted else ""),
            place=_place(case, estimate),
            fix="" if accepted else _with_message(case, f"{hint}, or: {advice}" if advice else hint, fails=True),
        )


def _fragmented(case: Case, estimate: Estimate) -> Iterator[Finding]:
    most, share = case.policy.max_fragmentation, estimate.fragmentation.together
    if most is None or share <= most:
        return
    table = case.places.table
    raised = f"raise max-fragmentation of job {case.job} ({table.file}:{table.line})"
    hint = f"{raised}, or take the allocator's setting that memplan simulate recommends"
    yield Finding(
        code="MP010",
        severity=_severity(case, fails=True),
        message=f"fragmentation at the peak {100 * share:.1f} %, over max-fragmentation {100 * most:g} %",
        place=table,
        fix=_with_message(case, hint, fails=True),
    )


def _words(case: Case, estimate: Estimate, limit: Limit) -> str:
    policy, peak = case.policy, estimate.peak.device_bytes
    over = format_bytes(peak - limit.bytes)
    if limit.key == "max-increase" and case.comparison is not None and policy.max_increase is not None:
        grown, before = case.comparison.grown, case.comparison.before.peak.device_bytes
        share = f" ({100 * grown / before:+.1f} %)" if before else ""
        allowed = _amount(policy.max_increase)
        return f"peak grew by {format_bytes(grown)}{share}, {over} more than max-increase {allowed} allows"
    if limit.key == "min-headroom" and policy.min_headroom is not None:
        needed = _amount(policy.min_headroom)
        return f"headroom {format_bytes(estimate.headroom_bytes)}, {over} short of min-headroom {needed}"
    return f"peak {format_bytes(peak)}, {over} over {limit.key} {format_bytes(limit.bytes)}"


def _notes(case: Case, estimate: Estimate) -> Iterator[Finding]:
    policy, peak = case.policy, estimate.peak
    if case.has_baseline and case.comparison is None and not case.accepts_growth:
        words = f"the baseline has no figures of {case.job} on {estimate.gpu.name}: growth is not judged"
        yield _note(case, "MP007", words, "memplan gate --update-baseline adds them")
    if not case.needs_most or estimate.verdict is Verdict.OOM:
        return
    if policy.max_peak is not None and policy.max_peak > LOOSE * peak.high_bytes > 0:
        times = f"{policy.max_peak / peak.high_bytes:.1f} times the upper end of the interval"
        words = f"max-peak {format_bytes(policy.max_peak)} is {times}"
        yield _note(case, "MP008", words, f'max-peak = "{budget(estimate)}" would still hold')
    if policy.max_peak is None and policy.min_headroom is None and policy.max_increase is None:
        words = f"no budget: the job may grow until it does not fit {estimate.gpu.name} any more"
        # What grew unasked is no budget: the accepted figure is.
        grown = case.comparison is not None and case.comparison.grown > 0 and not case.accepts_growth
        accepted = case.comparison.before if case.comparison is not None and grown else estimate
        yield _note(case, "MP009", words, f'max-peak = "{budget(accepted)}"')


def _note(case: Case, code: str, message: str, hint: str) -> Finding:
    return Finding(code=code, severity="note", message=message, place=case.places.table, fix=hint)


def _place(case: Case, estimate: Estimate) -> Place:
    grown = case.comparison is not None and case.comparison.grown > 0
    return case.places.of_growth(case.comparison) if case.comparison and grown else case.places.of_peak(estimate)


def _severity(case: Case, *, fails: bool) -> Severity:
    if not fails:
        return "note"
    return "warning" if case.policy.informational else "error"


def _changes(estimate: Estimate, limit: int) -> str:
    """What would bring the peak below a limit, the cheapest first."""
    found = [advice for advice in estimate.advice if advice.device_bytes <= limit]
    return "; ".join(map(_change, found[:2]))


def _change(advice: Advice) -> str:
    time = f" ({100 * advice.slowdown:+.0f} % time)" if advice.slowdown >= 0.005 else ""
    return f"{advice.change} → {format_bytes(advice.device_bytes)}{time}"


def _amount(amount: Amount) -> str:
    return f"{100 * amount.share:g} %" if amount.share is not None else format_bytes(amount.bytes or 0)


def _with_message(case: Case, hint: str, *, fails: bool) -> str:
    return ". ".join(part for part in (hint, case.policy.message if fails else "") if part)
