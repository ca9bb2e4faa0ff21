"""What the gate found as JSON, and back.

Each row carries its estimate and the baseline's in the contract of ``estimate``, so that ``diff``, ``report`` and
``--baseline`` read this, too.
"""

from dataclasses import dataclass
from pathlib import Path

from memplan.contract.document import Document, head, of_command
from memplan.contract.table import Table
from memplan.errors import ExitCode
from memplan.findings.records import Finding, Place
from memplan.gate.compare import compare
from memplan.gate.records import GateResult, Growth, Outcome, Row
from memplan.measure.digest_records import HistoryDigest
from memplan.measure.records import Estimate
from memplan.report.estimate.json import DOCUMENT as ESTIMATE
from memplan.report.estimate.json import EstimateReport
from memplan.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReport:
    """One job on one GPU."""

    job: str
    """Its name."""
    gpu: str
    """The profile's name."""
    outcome: Outcome
    """Does it pass?"""
    limit_bytes: Bytes | None
    """The least of all limits that the policy sets, in bytes of the device peak; null: none."""
    informational: bool
    """It cannot fail."""
    cached: bool
    """Nothing has changed since it was last traced."""
    findings: tuple[Finding, ...]
    """Errors first."""
    estimate: EstimateReport | None
    """Null where there is none; a finding says why."""
    baseline: Estimate | None
    """What it is compared with; null where there are no figures of it."""
    grown_bytes: int | None = None
    """Bytes of the device peak more than the baseline's."""
    growth: tuple[Growth, ...] | None = None
    """What changed, the largest growth first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """The gate's answer."""

    project: Path
    """The project file."""
    baseline: Path | None
    """What was compared with; null: nothing."""
    exit_code: ExitCode = ExitCode.DONE
    """1 if a row fails, else 3 if one is unknown, else 0."""
    rows: tuple[RowReport, ...]
    """In the order of the file, its GPUs in theirs."""
    notes: tuple[str, ...]
    """What concerns no single row."""
    seconds: float
    """Wall time."""


DOCUMENT = Document(
    name="gate",
    root=GateReport,
    tables={
        **ESTIMATE.tables,
        GateReport: Table(keys={**head("gate"), "timings": {"seconds": "seconds"}}),
        Finding: Table(keys={"level": "severity", "hint": "fix"}, omit=("evidence", "diff", "subject", "identity")),
        Place: Table(omit=("column", "end_line", "end_column", "cell", "text")),
        Growth: Table(keys={"before_bytes": "before", "after_bytes": "after"}),
    },
)


def report_of(result: GateResult) -> GateReport:
    """Return the gate's answer as it is written."""
    return GateReport(
        project=result.project,
        baseline=result.baseline,
        exit_code=result.exit_code,
        rows=tuple(_row_report(row, result.digests.get((row.job, row.gpu))) for row in result.rows),
        notes=result.notes,
        seconds=result.seconds,
    )


def render(result: GateResult) -> str:
    """Render the JSON report."""
    return DOCUMENT.render(report_of(result))


def read_gate(content: object, where: str | None = None) -> GateResult:
    """Read what ``render`` wrote.

    Raises:
        UsageError: It is no result of the gate of this major version, or broken.
    """
    report: GateReport = DOCUMENT.read(of_command(content, "gate", where), where)
    timelines = {(row.job, row.gpu): row.estimate.timeline for row in report.rows if row.estimate}
    return GateResult(
        project=report.project,
        rows=tuple(map(_row, report.rows)),
        baseline=report.baseline,
        notes=report.notes,
        seconds=report.seconds,
        digests={key: timeline for key, timeline in timelines.items() if timeline is not None},
    )


def _row_report(row: Row, digest: HistoryDigest | None) -> RowReport:
    comparison = row.comparison
    return RowReport(
        job=row.job,
        gpu=row.gpu,
        outcome=row.outcome,
        limit_bytes=row.limit,
        informational=row.informational,
        cached=row.cached,
        findings=row.findings,
        estimate=EstimateReport(row.estimate, digest) if row.estimate else None,
        baseline=comparison.before if comparison else None,
        grown_bytes=comparison.grown if comparison else None,
        growth=comparison.growth if comparison else None,
    )


def _row(report: RowReport) -> Row:
    estimate, before = report.estimate.estimate if report.estimate else None, report.baseline
    return Row(
        job=report.job,
        gpu=report.gpu,
        outcome=report.outcome,
        estimate=estimate,
        # Growth follows from the two: the file's own list is for other readers.
        comparison=compare(before, estimate) if before and estimate else None,
        findings=report.findings,
        limit=report.limit_bytes,
        informational=report.informational,
        cached=report.cached,
    )
