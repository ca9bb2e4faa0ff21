"""The JSON report of ``memplan batch``."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from memplan.contract.document import Document, head
from memplan.contract.table import Table, only
from memplan.hardware.profile import GpuProfile
from memplan.plan.batch.records import BatchAnswer


class BatchResult(NamedTuple):
    """The answer for one GPU."""

    gpu: GpuProfile
    """The device."""
    answer: BatchAnswer
    """The largest batch that fits it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The answers for one target."""

    target: str
    """As typed."""
    results: tuple[BatchResult, ...]
    """One for each GPU, in the order asked for."""


DOCUMENT = Document(
    name="batch",
    root=BatchReport,
    tables={
        BatchReport: Table(keys=head("batch")),
        BatchResult: Table(spread=("answer",)),
        GpuProfile: only("name", "title", "usable_bytes"),
        BatchAnswer: Table(keys={"result": "ended", "timings": {"search_seconds": "seconds"}}),
    },
)


def render(target: str, found: Iterable[tuple[GpuProfile, BatchAnswer]]) -> str:
    """Render all answers as one object."""
    return DOCUMENT.render(BatchReport(target=target, results=tuple(BatchResult(*pair) for pair in found)))
