"""The JSON report of ``memplan estimate``: one estimate as an object, several as a list in one."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from memplan.contract.document import Document, head
from memplan.contract.table import Table, if_any
from memplan.measure.digest_records import HistoryDigest
from memplan.measure.document import ESTIMATE, TIMELINE
from memplan.measure.records import Estimate


class EstimateReport(NamedTuple):
    """An estimate, and its history where it is to be written."""

    estimate: Estimate
    """The answer."""
    timeline: HistoryDigest | None = None
    """The history of its replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateReports:
    """Several, in the order of ``--gpu``."""

    estimates: tuple[EstimateReport, ...]
    """One for each GPU."""


DOCUMENT = Document(
    name="estimate",
    root=EstimateReport | EstimateReports,
    tables={
        **ESTIMATE.tables,
        **TIMELINE.tables,
        EstimateReport: Table(keys={"timeline": if_any("timeline")}, spread=("estimate",)),
        EstimateReports: Table(keys=head("estimate")),
    },
)


def report_of(
    estimates: Sequence[Estimate], digests: Sequence[HistoryDigest | None] = ()
) -> EstimateReport | EstimateReports:
    """Return what stands for one estimate, or for several, each with its digest as ``timeline`` where there is one."""
    reports = tuple(EstimateReport(*pair) for pair in zip_longest(estimates, digests))
    return reports[0] if len(reports) == 1 else EstimateReports(estimates=reports)


def render(estimates: Sequence[Estimate], digests: Sequence[HistoryDigest | None] = ()) -> str:
    """Render estimates as one object; arguments as of ``report_of``."""
    return DOCUMENT.render(report_of(estimates, digests))
