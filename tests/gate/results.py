"""A result of the gate, made by hand."""

from pathlib import Path

from hypothesis import strategies as st

from memplan.findings.records import Finding, Place
from memplan.findings.rules import ESTIMATE
from memplan.gate.compare import compare
from memplan.gate.records import GateResult, Row
from memplan.measure.records import Verdict
from memplan.units import Bytes
from tests.report.estimate_strategies import NAMES, SIZES, estimates


def findings() -> st.SearchStrategy[Finding]:
    places = st.builds(Place, file=NAMES, line=st.integers(1, 10**6))
    severities = st.sampled_from(["error", "warning", "note"])
    return st.builds(
        Finding, code=st.sampled_from(sorted(ESTIMATE)), severity=severities, message=NAMES, place=places, fix=NAMES
    )


@st.composite
def rows(draw: st.DrawFn) -> Row:
    estimate = draw(st.none() | estimates())
    before = draw(st.none() | estimates())
    if estimate is not None and estimate.verdict is Verdict.UNKNOWN:
        estimate = None
    if before is not None and before.verdict is Verdict.UNKNOWN:
        before = None
    return Row(
        job=draw(NAMES),
        gpu=draw(NAMES),
        outcome=draw(st.sampled_from(["passed", "failed", "unknown"])),
        estimate=estimate,
        comparison=compare(before, estimate) if before and estimate else None,
        findings=tuple(draw(st.lists(findings(), max_size=3))),
        limit=draw(st.none() | SIZES.map(Bytes)),
        informational=draw(st.booleans()),
        cached=draw(st.booleans()),
    )


PATHS = st.sampled_from([Path("memplan.toml"), Path("a/b c.toml"), Path("/x/y")])


RESULTS = st.builds(
    GateResult,
    project=PATHS,
    baseline=st.none() | PATHS,
    rows=st.lists(rows(), max_size=3).map(tuple),
    notes=st.lists(NAMES, max_size=2).map(tuple),
    seconds=st.floats(0, 1e6),
)
