"""The JSON of ``memplan monitor``."""

from typing import NamedTuple

from memplan.contract.document import Document, head
from memplan.contract.table import Table, made, or_null
from memplan.findings.rules import RULES
from memplan.runtime.monitor.log import LINES, RunAdvice, recommended
from memplan.runtime.monitor.outcome import Ending, Peak, PostMortem, RunOutcome


class OutcomeCurve(NamedTuple):
    """Memory of the first device over time."""

    seconds: tuple[float, ...]
    """Since the command was started."""
    allocated_bytes: tuple[int, ...]
    """In live blocks; 0 where nobody counts them."""
    reserved_bytes: tuple[int, ...]
    """Held: what is in segments, else all that is in use; on the CPU resident memory."""


class EndingReport(NamedTuple):
    """How the run ended, as far as anybody can tell."""

    ending: Ending
    """How the command did."""
    signal: int | None
    """The signal that ended it, if one did."""


def _curve(outcome: RunOutcome) -> OutcomeCurve:
    """Columns of the same length."""
    return OutcomeCurve(*zip(*outcome.curve, strict=True)) if outcome.curve else OutcomeCurve((), (), ())


def _ending(outcome: RunOutcome) -> EndingReport:
    """How it ended."""
    code = outcome.ending.code
    return EndingReport(outcome.ending, -code if code < 0 else None)


def _recommendations(outcome: RunOutcome) -> tuple[RunAdvice, ...]:
    """What was recommended at any time, worst first."""
    return recommended(outcome.recommendations)


DOCUMENT = Document(
    name="monitor",
    # A report, or a line of a log.
    root=RunOutcome | LINES.root,
    tables={
        **LINES.tables,
        RunOutcome: Table(
            keys={
                **head("monitor"),
                "run": "command",
                "ending": _ending,
                "recommendations": _recommendations,
                "resident_bytes": "resident",
                "curve": _curve,
            }
        ),
        EndingReport: Table(spread=("ending",)),
        Peak: Table(
            keys={
                **{f"{name}_bytes": name for name in ("total", "used", "allocated", "reserved")},
                **{f"{name}_bytes": name for name in ("measured", "predicted", "predicted_high")},
                "figure": or_null("figure"),
            }
        ),
        PostMortem: Table(
            keys={
                "symptom": made(PostMortem, str, "What was seen.", lambda found: RULES[found.code].title),
                "cause": made(PostMortem, str, "Why that happens.", lambda found: RULES[found.code].meaning),
                "fix": made(PostMortem, str, "What to do about it.", lambda found: RULES[found.code].remedy),
                "snapshot": or_null("snapshot"),
            }
        ),
    },
)
render = DOCUMENT.render
