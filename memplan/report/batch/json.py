"""The JSON report of ``memplan batch``."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import NamedTuple

from memplan.contract.document import Document, head
from memplan.contract.table import Table, if_any, only
from memplan.hardware.profile import GpuProfile
from memplan.measure.records import TailRisk
from memplan.plan.batch.records import BatchAnswer, BatchTurn


class BatchResult(NamedTuple):
    """The answer for one GPU."""

    gpu: GpuProfile
    """The device."""
    answer: BatchAnswer
    """The largest batch that fits it."""


class TurnOf(NamedTuple):
    """A larger value at which the verdict of a GPU turns."""

    gpu: str
    """Its name."""
    turn: BatchTurn
    """Where, and to what."""


class TailOf(NamedTuple):
    """How likely runs of drawn lengths run out of a GPU's memory."""

    gpu: str
    """Its name."""
    value: int
    """The batch size."""
    risk: TailRisk | None
    """How likely; None where nobody knows what the step takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The answers for one target."""

    target: str
    """As typed."""
    results: tuple[BatchResult, ...]
    """One for each GPU, in the order asked for."""
    turns: tuple[TurnOf, ...]
    """Values beyond the answers at which verdicts turn."""
    tails: tuple[TailOf, ...] = ()
    """Of drawn lengths: the chance at the answers, and at smaller ones where these run out."""


_BESIDE = ("ended", "seconds", "turns", "tails")
_KEPT = {field.name: field.name for field in fields(BatchAnswer) if field.name not in _BESIDE}
DOCUMENT = Document(
    name="batch",
    root=BatchReport,
    tables={
        BatchReport: Table(keys={**head("batch"), "turns": if_any("turns"), "tails": if_any("tails")}),
        BatchResult: Table(spread=("answer",)),
        GpuProfile: only("name", "title", "usable_bytes"),
        TurnOf: Table(spread=("turn",)),
        # Its turns and tails stand beside the results, whose keys are fixed.
        BatchAnswer: Table(
            keys={"result": "ended", "timings": {"search_seconds": "seconds"}, **_KEPT},
            rest=False,
        ),
    },
)


def render(target: str, found: Iterable[tuple[GpuProfile, BatchAnswer]]) -> str:
    """Render all answers as one object."""
    results = tuple(BatchResult(*pair) for pair in found)
    turns = tuple(TurnOf(gpu.name, turn) for gpu, answer in results for turn in answer.turns)
    tails = tuple(TailOf(gpu.name, tail.value, tail.risk) for gpu, answer in results for tail in answer.tails)
    return DOCUMENT.render(BatchReport(target=target, results=results, turns=turns, tails=tails))
