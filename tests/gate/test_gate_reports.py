"""The gate's reports: text at 80 columns, JSON by its schema and back, comparisons."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion

from memplan.errors import EstimateError, ExitCode, UsageError
from memplan.gate.compare import compare, difference
from memplan.gate.judge import Case, judge, limits, outcome
from memplan.gate.records import GateResult, Row
from memplan.measure.records import Advice, Estimate, Owner
from memplan.project.records import Amount, Policy
from memplan.report.draw.layout import bounded
from memplan.report.gate import diff as report_diff
from memplan.report.gate import diff_json
from memplan.report.gate import json as gate_json
from memplan.report.gate import text as report_gate
from memplan.report.html import diff as diff_page
from memplan.units import GIB, MIB
from tests.contract.goldens import derived, golden, obey
from tests.gate.cases import PLACES
from tests.gate.results import RESULTS
from tests.report.estimate_strategies import NAMES, estimates
from tests.report.example_estimates import A100, FITS, H100, OOM, UNKNOWN
from tests.report.html.reader import Reader


def grown(estimate: Estimate) -> Estimate:
    """The same with 12 GiB more activations, in blocks that were not there."""
    new = tuple(
        Owner(module=f"model.layers.{index}.mlp", source="model.py:41", category="activation", bytes=GIB)
        for index in range(12)
    )
    peak = replace(estimate.peak, device_bytes=estimate.peak.device_bytes + 12 * GIB)
    breakdown = {**estimate.breakdown, "activation": estimate.breakdown["activation"] + 12 * GIB}
    return replace(estimate, peak=peak, breakdown=breakdown, owners=(*new, *estimate.owners))


def row(job: str, estimate: Estimate | None, policy: Policy, **further: object) -> Row:
    case = Case(job=job, policy=policy, places=PLACES, estimate=estimate, **further)
    findings = judge(case)
    return Row(
        job=job,
        gpu=estimate.gpu.name if estimate else "h100-80g",
        outcome=outcome(case, findings),
        estimate=estimate,
        comparison=case.comparison,
        findings=findings,
        limit=min((limit.bytes for limit in limits(case)), default=None),
        informational=policy.informational,
        cached=job == "bert",
    )


after = grown(FITS)
RESULT = GateResult(
    project=Path("memplan.toml"),
    baseline=Path("memplan-baseline.json"),
    rows=(
        row("bert", FITS, Policy(max_peak=75 * GIB), comparison=compare(FITS, FITS), has_baseline=True),
        row("llama-8b-sft", replace(after, gpu=H100), Policy(max_increase=Amount(share=0.02), message="Ask #training."),
            comparison=compare(FITS, after), has_baseline=True),
        row("llama-8b-sft", OOM, Policy(fail_on="tight"), has_baseline=True),
        row("a job with a very long name that goes on and on", OOM, Policy(informational=True)),
        row("broken", None, Policy(), error=EstimateError("model() raised ValueError: no width", hint="look at it")),
        row("strange", UNKNOWN, Policy(fail_on="unknown")),
    ),
    notes=("the baseline has figures of jobs that are gone: " + ", ".join(f"job-{index}" for index in range(20)),),
    seconds=12.34,
)  # fmt: skip


def text(**options: object) -> str:
    return "\n".join(line.plain for line in report_gate.render(RESULT, **options)) + "\n"


def test_text(snapshot: SnapshotAssertion) -> None:
    assert text() == snapshot


def test_text_quiet(snapshot: SnapshotAssertion) -> None:
    assert text(quiet=True) == snapshot


FEW = settings(max_examples=20)
"""Each example is a handful of estimates."""


@FEW
@given(RESULTS, st.integers(20, 200))
def test_text_fits_any_width_and_ends_with_the_answer(result: GateResult, width: int) -> None:
    lines = [line.plain for line in report_gate.render(result, width=width)]
    most = bounded(width)
    assert all(cell_len(line) <= most for line in lines)
    assert not any(char in line for line in lines for char in "\n\r\x1b\x00")
    assert lines[-1][0] in "✓!✗?"
    assert (lines[-1][0] == "✗") == (result.exit_code is ExitCode.POLICY)


@FEW
@given(RESULTS)
def test_json_is_read_back_as_it_was(result: GateResult) -> None:
    assert gate_json.read_gate(json.loads(gate_json.render(result))) == result


@FEW
@given(RESULTS)
def test_json_obeys_its_schema(result: GateResult) -> None:
    obey("gate", json.loads(gate_json.render(result)))


def test_the_schema_refuses_what_is_wrong() -> None:
    content = json.loads(gate_json.render(RESULT))
    obey("gate", content)
    content["rows"][0]["estimate"]["verdict"] = "splendid"
    assert not golden("gate").is_valid(content)
    assert not derived("gate").is_valid(content)


@pytest.mark.parametrize(
    "broken", [{}, {"rows": 3}, {"rows": [{}]}, {"timings": None}, {"schema_version": "2.0"}, {"command": "estimate"}]
)
def test_a_broken_result_is_refused(broken: dict[str, object]) -> None:
    content = json.loads(gate_json.render(RESULT)) if broken else {}
    with pytest.raises(UsageError):
        gate_json.read_gate(content | broken, "gate.json")


SIDES = (
    {("llama", "h100-80g"): FITS, ("bert", "h100-80g"): after, ("gone", "t4"): FITS, ("odd|`job", "t4"): FITS},
    {("llama", "h100-80g"): after, ("bert", "h100-80g"): FITS, ("new", "t4"): OOM, ("odd|`job", "t4"): UNKNOWN},
)
DIFF = difference(*SIDES, names=("main", "feature"))


def test_comparison_as_text(snapshot: SnapshotAssertion) -> None:
    assert "\n".join(line.plain for line in report_diff.render(DIFF)) + "\n" == snapshot


def test_comparison_as_markdown(snapshot: SnapshotAssertion) -> None:
    assert report_diff.render_markdown(DIFF) == snapshot


def test_comparison_as_json() -> None:
    content = json.loads(diff_json.render(DIFF))
    derived("diff").validate(content)
    by_job = {row["job"]: row for row in content["rows"]}
    assert by_job["llama"]["grown_bytes"] == 12 * GIB
    assert (by_job["new"]["before"], by_job["gone"]["after"], by_job["odd|`job"]["grown_bytes"]) == (None, None, None)
    for row in content["rows"]:
        if row["before"] and row["after"] and row["grown_bytes"] is not None:
            peaks = [row[side]["peak"]["device_bytes"] for side in ("before", "after")]
            assert row["grown_bytes"] == peaks[1] - peaks[0]


def test_comparison_as_a_page() -> None:
    page = Reader(diff_page.render(DIFF))
    assert json.loads(page.report) == json.loads(diff_json.render(DIFF))
    for words in (report_diff.answer(DIFF), "main → feature", "llama on h100-80g", "+12.00 GiB (+17.0 %)", "odd|`job"):
        assert words in page.words


def test_single_jobs_are_compared_whatever_they_are_called() -> None:
    (change,) = difference({("old/model.py", "t4"): FITS}, {("model.py", "t4"): after}, names=("a", "b")).changes
    assert change.grown == 12 * GIB


@FEW
@given(
    st.dictionaries(st.tuples(NAMES, NAMES), estimates(), max_size=3),
    st.dictionaries(st.tuples(NAMES, NAMES), estimates(), max_size=3),
    st.integers(20, 200),
)
def test_every_job_of_either_side_has_its_line(
    base: dict[tuple[str, str], Estimate], head: dict[tuple[str, str], Estimate], width: int
) -> None:
    found = difference(base, head, names=("a", "b"))
    lines = [line.plain for line in report_diff.render(found, width=width, quiet=True)]
    assert len([line for line in lines if " → " in line]) >= len(found.changes)
    assert all(cell_len(line) <= min(max(width, 60), 100) for line in lines)
    cells = [line for line in report_diff.render_markdown(found).splitlines() if line.startswith("| ")]
    assert len(cells) >= len(found.changes) + 1
    assert "\x00" not in "".join(cells)
    assert Reader(diff_page.render(found)).words.count("memplan diff") == 1


def test_advice_in_the_small() -> None:
    estimate = replace(OOM, gpu=A100, advice=(Advice(change="--checkpoint full", device_bytes=9 * MIB, slowdown=0.3),))
    (finding,) = [each for each in row("a", estimate, Policy(max_peak=10**12)).findings if each.code == "MP001"]
    assert finding.fix == "--checkpoint full → 9.00 MiB (+30 % time)"
