"""What the plugin says: one sentence where a test fails, a line for each estimate in the summary."""

from collections.abc import Sequence

from memplan.measure.records import Estimate
from memplan.pytest_plugin.records import Figure, MarkerLimit
from memplan.report.draw.layout import file_name
from memplan.report.estimate.owners import TOP_LEVEL, grouped
from memplan.report.gate.growth import change
from memplan.report.labels import LABELS
from memplan.units import format_bytes

_OWNERS_NAMED = 3


def over_limit(estimate: Estimate, limit: MarkerLimit, figure: Figure) -> str | None:
    """What is said of an estimate that needs more than it may; None where it does not."""
    allowed = figure.limit_bytes
    if allowed is None or estimate.peak.device_bytes <= allowed:
        return None
    over = f"{format_bytes(estimate.peak.device_bytes - allowed)} over"
    is_own = limit.bytes is not None and allowed == limit.bytes
    bound = f"the limit of {limit.typed}" if is_own else f"the {format_bytes(allowed)} usable"
    return f"{_predicted(figure)}, {over} {bound}: {_largest(estimate)}{_advice(estimate, allowed)}"


def grown(estimate: Estimate, figure: Figure) -> str:
    """What is said of an estimate that grew."""
    return f"{_predicted(figure)}, {format_bytes(figure.grown)} more than before: {_largest(estimate)}"


def _predicted(figure: Figure) -> str:
    return f"predicted {format_bytes(figure.device_bytes)} on {figure.gpu}"


def _largest(estimate: Estimate) -> str:
    owners = grouped(estimate.owners)[:_OWNERS_NAMED]
    named = []
    for owner in owners:
        kind = LABELS.get(owner.category, owner.category)
        source = f", {file_name(owner.source)}" if owner.source else ""
        named.append(f"{owner.module or TOP_LEVEL} ({format_bytes(owner.bytes)} of {kind}{source})")
    return f"most is held by {', '.join(named)}" if named else "nothing is known of what holds it"


def _advice(estimate: Estimate, allowed: int) -> str:
    fitting = [advice for advice in estimate.advice if advice.device_bytes <= allowed]
    return f"; it would do with {fitting[0].change} ({format_bytes(fitting[0].device_bytes)})" if fitting else ""


def summary_lines(figures: Sequence[Figure]) -> list[str]:
    """A line for each estimate: peak, limit, change, what was estimated."""
    rows = [
        (
            format_bytes(each.device_bytes),
            f"of {format_bytes(each.limit_bytes)}" if each.limit_bytes is not None else "",
            "" if each.previous_bytes is None else change(each.grown) if each.grown else "unchanged",
            f"{each.target} on {each.gpu}",
            each.key,
        )
        for each in figures
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        f"{row[0]:>{widths[0]}} {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:<{widths[3]}}  {row[4]}".rstrip()
        for row in rows
    ]
