"""Is a job within its policy? Against a plain re-statement of the rules, and by laws."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import EstimateError
from memplan.findings.rules import ESTIMATE
from memplan.gate.compare import compare
from memplan.gate.judge import budget, judge, limits, outcome
from memplan.measure.records import Advice, Fragmentation, Verdict
from memplan.project.records import Amount, Policy
from memplan.units import GIB, parse_size
from tests.gate.cases import case, sized
from tests.report.example_estimates import UNKNOWN

SIZES = st.integers(0, 300_000)
AMOUNTS = st.builds(Amount, bytes=SIZES) | st.builds(Amount, share=st.floats(0, 1))
POLICIES = st.builds(
    Policy,
    max_peak=st.none() | SIZES,
    min_headroom=st.none() | AMOUNTS,
    max_increase=st.none() | AMOUNTS,
    fail_on=st.sampled_from(["oom", "tight", "unknown"]),
    informational=st.booleans(),
)
ESTIMATES = st.builds(lambda low, high: sized(min(low, high), high=max(low, high)), SIZES, SIZES) | st.just(UNKNOWN)
BEFORE = st.none() | SIZES.map(sized)


def given_case(policy, estimate, before):
    comparison = compare(before, estimate) if before is not None and estimate.verdict is not Verdict.UNKNOWN else None
    return case(estimate, policy, comparison=comparison, has_baseline=before is not None)


def expected(policy, estimate, before) -> set[str]:
    """Codes that must fail the row, written down once more from the documentation."""
    if estimate.verdict is Verdict.UNKNOWN:
        return {"MP003"} if policy.fail_on == "unknown" else set()
    peak, usable = estimate.peak.device_bytes, 100_000
    codes = set()
    if peak > usable:
        codes.add("MP001")
    elif estimate.peak.high_bytes > usable and policy.fail_on in ("tight", "unknown"):
        codes.add("MP002")
    if policy.max_peak is not None and peak > policy.max_peak:
        codes.add("MP004")
    if policy.min_headroom is not None:
        amount = policy.min_headroom
        room = amount.bytes if amount.share is None else round(amount.share * usable)
        if usable - peak < room:
            codes.add("MP005")
    if policy.max_increase is not None and before is not None:
        amount, was = policy.max_increase, before.peak.device_bytes
        allowed = amount.bytes if amount.share is None else round(amount.share * was)
        if peak - was > allowed:
            codes.add("MP006")
    return codes


@given(POLICIES, ESTIMATES, BEFORE)
def test_what_fails_is_what_the_rules_say(policy, estimate, before) -> None:
    judged = given_case(policy, estimate, before)
    findings = judge(judged)
    codes = expected(policy, estimate, before)
    level = "warning" if policy.informational else "error"
    failing = {each.code for each in findings if each.severity == level}
    unknown = estimate.verdict is Verdict.UNKNOWN and policy.fail_on != "unknown"
    assert failing == (codes | {"MP003"} if unknown and policy.informational else codes)
    if codes and not policy.informational:
        assert outcome(judged, findings) == "failed"
    elif estimate.verdict is Verdict.UNKNOWN and not policy.informational:
        assert outcome(judged, findings) == "unknown"
    else:
        assert outcome(judged, findings) == "passed"
    assert {each.code for each in findings} <= ESTIMATE.keys()


RANK = {"passed": 0, "unknown": 1, "failed": 2}


@given(
    POLICIES,
    ESTIMATES,
    BEFORE,
    SIZES,
    st.sampled_from(["max_peak", "min_headroom", "max_increase", "fail_on", "informational"]),
)
def test_loosening_a_policy_never_makes_it_worse(policy, estimate, before, more: int, loosened: str) -> None:
    match loosened:
        case "max_peak":
            loose = replace(policy, max_peak=None if policy.max_peak is None else policy.max_peak + more)
        case "min_headroom":
            loose = replace(policy, min_headroom=None)
        case "max_increase":
            amount = policy.max_increase
            wider = amount and (
                Amount(bytes=amount.bytes + more) if amount.share is None else Amount(share=amount.share + more / 1000)
            )
            loose = replace(policy, max_increase=wider)
        case "fail_on":
            loose = replace(policy, fail_on="oom")
        case _:
            loose = replace(policy, informational=True)
    strict, after = (given_case(each, estimate, before) for each in (policy, loose))
    assert RANK[outcome(after, judge(after))] <= RANK[outcome(strict, judge(strict))]


@given(POLICIES, ESTIMATES, BEFORE, st.integers(1, 50_000))
def test_a_smaller_peak_never_makes_it_worse(policy, estimate, before, less: int) -> None:
    if estimate.verdict is Verdict.UNKNOWN:
        return
    peak = estimate.peak
    smaller = sized(max(0, peak.device_bytes - less), high=max(0, peak.high_bytes - less))
    large, small = (given_case(policy, each, before) for each in (estimate, smaller))
    assert RANK[outcome(small, judge(small))] <= RANK[outcome(large, judge(large))]


@given(POLICIES, BEFORE, SIZES)
def test_the_limits_are_where_it_turns(policy, before, peak: int) -> None:
    judged = given_case(policy, sized(peak), before)
    least = min((limit.bytes for limit in limits(judged)), default=None)
    over = {each.code for each in judge(judged)} & {"MP004", "MP005", "MP006"}
    assert bool(over) == (least is not None and peak > least)


@given(POLICIES, ESTIMATES, BEFORE)
def test_an_informational_job_never_fails(policy, estimate, before) -> None:
    judged = given_case(replace(policy, informational=True), estimate, before)
    findings = judge(judged)
    assert outcome(judged, findings) == "passed"
    assert all(each.severity != "error" for each in findings)


@given(st.integers(1, 200 * GIB), st.integers(0, 20 * GIB))
def test_the_budget_that_is_advised_holds_and_is_no_more_than_a_tenth_above(peak: int, more: int) -> None:
    estimate = sized(peak, high=peak + more, usable=300 * GIB)
    advised = parse_size(budget(estimate))
    # The text is decimal: a byte may be lost in a tenth of a GiB.
    assert estimate.peak.high_bytes <= advised + 1 <= estimate.peak.high_bytes + GIB // 10 + 2


def found(policy: Policy, estimate, **further):
    judged = case(estimate, policy, **further)
    return {each.code: each for each in judge(judged)}


def test_a_message_says_by_how_much_and_a_hint_where_to_change_it() -> None:
    estimate = sized(int(76.3 * GIB), usable=80 * GIB)
    estimate = replace(estimate, advice=(
        Advice(change="--batch-size 2", device_bytes=75 * GIB, slowdown=0.0),
        Advice(change="--checkpoint full", device_bytes=61 * GIB, slowdown=0.31),
    ))  # fmt: skip
    finding = found(Policy(max_peak=72 * GIB, message="Ask #training."), estimate)["MP004"]
    assert finding.message == "peak 76.30 GiB, 4.30 GiB over max-peak 72.00 GiB"
    assert finding.fix == (
        "raise max-peak of job llama (memplan.toml:7), or: --checkpoint full → 61.00 GiB (+31 % time). Ask #training."
    )


def test_growth_is_told_with_what_is_allowed() -> None:
    after = sized(11 * GIB, usable=80 * GIB)
    comparison = compare(sized(10 * GIB, usable=80 * GIB), after)
    finding = found(Policy(max_increase=Amount(share=0.02)), after, comparison=comparison)["MP006"]
    assert finding.message == "peak grew by 1.00 GiB (+10.0 %), 819.20 MiB more than max-increase 2 % allows"
    accepted = found(Policy(max_increase=Amount(share=0.02)), after, comparison=comparison, accepts_growth=True)
    assert accepted["MP006"].severity == "note"


def test_headroom_is_told_with_what_is_missing() -> None:
    finding = found(Policy(min_headroom=Amount(share=0.05)), sized(78 * GIB, usable=80 * GIB))["MP005"]
    assert finding.message == "headroom 2.00 GiB, 2.00 GiB short of min-headroom 5 %"


def test_a_device_without_a_limit_has_no_headroom_to_miss() -> None:
    estimate = replace(sized(5), verdict=Verdict.FITS, gpu=replace(sized(5).gpu, usable_bytes=0))
    assert "MP005" not in found(Policy(min_headroom=Amount(share=0.05)), estimate)


def test_fragmentation_is_a_rule_of_its_own() -> None:
    estimate = replace(sized(70 * GIB, usable=80 * GIB), fragmentation=Fragmentation(external=0.1, internal=0.05))
    finding = found(Policy(max_fragmentation=0.14), estimate)["MP010"]
    # 0.9 of the segments are live blocks, of which 0.95 were asked for.
    assert finding.message == "fragmentation at the peak 14.5 %, over max-fragmentation 14 %"
    assert finding.severity == "error"
    assert "MP010" not in found(Policy(max_fragmentation=0.15), estimate)
    assert found(Policy(max_fragmentation=0.14, informational=True), estimate)["MP010"].severity == "warning"


def test_an_error_is_told_as_it_was() -> None:
    error = EstimateError("model() raised ValueError: no", where="nowhere.py:3", hint="look")
    finding = found(Policy(fail_on="unknown", message="Ask."), None, error=error)["MP003"]
    assert (finding.message, finding.fix, finding.severity) == ("model() raised ValueError: no", "look. Ask.", "error")
    assert finding.place.file == "memplan.toml", "the line is no file of the repository"


@pytest.mark.parametrize(("peak", "is_told"), [(50_000, True), (90_000, False)])
def test_a_loose_limit_is_told(peak: int, is_told: bool) -> None:
    assert ("MP008" in found(Policy(max_peak=100_000), sized(peak))) == is_told
    assert "MP008" not in found(Policy(max_peak=100_000), sized(peak), needs_most=False)


def test_a_job_without_a_budget_is_given_one_to_paste() -> None:
    assert found(Policy(), sized(3 * GIB, high=4 * GIB - 1, usable=8 * GIB))["MP009"].fix == 'max-peak = "4GiB"'
    assert "MP009" not in found(Policy(max_peak=100), sized(3))


def test_what_grew_unasked_is_no_budget() -> None:
    accepted, grown = sized(3 * GIB, high=3 * GIB, usable=8 * GIB), sized(5 * GIB, high=5 * GIB, usable=8 * GIB)
    told = found(Policy(), grown, comparison=compare(accepted, grown), has_baseline=True)["MP009"]
    assert told.fix == 'max-peak = "3GiB"'
    shrunk = found(Policy(), accepted, comparison=compare(grown, accepted), has_baseline=True)["MP009"]
    assert shrunk.fix == 'max-peak = "3GiB"'


def test_a_job_that_the_baseline_does_not_know_is_told() -> None:
    assert found(Policy(), sized(3), has_baseline=True)["MP007"].severity == "note"
    assert "MP007" not in found(Policy(), sized(3), has_baseline=False)
