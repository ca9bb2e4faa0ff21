"""What changed between two sets of estimates as JSON: both sides of every row in the contract of ``estimate``."""

from dataclasses import dataclass

from memplan.contract.document import Document, head
from memplan.contract.table import Table
from memplan.gate.compare import Diff, RowChange
from memplan.gate.records import Growth
from memplan.measure.records import Estimate
from memplan.report.estimate.json import DOCUMENT as ESTIMATE


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeReport:
    """One job on one GPU."""

    job: str
    """Its name, or its target where it has none."""
    gpu: str
    """The profile's name."""
    before: Estimate | None
    """Null: it is new."""
    after: Estimate | None
    """Null: it is gone."""
    grown_bytes: int | None
    """Bytes of the device peak more than before; null where one side has no figures."""
    growth: tuple[Growth, ...]
    """What changed, the largest growth first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffReport:
    """Two sets of estimates."""

    base: str
    """What the user calls the first: a file or a revision."""
    head: str
    """The second."""
    rows: tuple[ChangeReport, ...]
    """Every job and GPU of either, the largest growth first."""


DOCUMENT = Document(
    name="diff",
    root=DiffReport,
    tables={
        **ESTIMATE.tables,
        DiffReport: Table(keys={**head("diff")}),
        Growth: Table(keys={"before_bytes": "before", "after_bytes": "after"}),
    },
)


def report_of(diff: Diff) -> DiffReport:
    """Return what changed as it is written."""
    return DiffReport(base=diff.base, head=diff.head, rows=tuple(map(_row, diff.changes)))


def render(diff: Diff) -> str:
    """Render the JSON report."""
    return DOCUMENT.render(report_of(diff))


def _row(change: RowChange) -> ChangeReport:
    found = change.comparison
    return ChangeReport(
        job=change.job,
        gpu=change.gpu,
        before=change.before,
        after=change.after,
        grown_bytes=found.grown if found else None,
        growth=found.growth if found else (),
    )
