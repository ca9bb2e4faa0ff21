"""The gate's answer in one sentence: what failed or grew, by how much and why."""

from collections.abc import Sequence

from memplan.gate.records import Comparison, GateResult, Growth, Row
from memplan.report.gate.findings import module, name, short_source
from memplan.report.gate.growth import category_changes, grouped_growth, share
from memplan.report.gate.text import counts, state
from memplan.units import format_bytes

_WORST_FIRST = ("failed", "unknown", "warned", "passed")


def headline(result: GateResult) -> str:
    """Return the answer and the row that matters most: ``1 of 2 failed: small on l4 grew by 160.00 MiB (+11.6 %), …``.

    Of rows that fare alike the one that grew most is told.
    """
    if not result.rows:
        return "no jobs"
    worst = min(result.rows, key=lambda row: (_WORST_FIRST.index(state(row)), -_grown(row)))
    told = _sentence(worst)
    return f"{counts(result)}: {told}" if told else counts(result)


def _grown(row: Row) -> int:
    return row.comparison.grown if row.comparison else 0


def _sentence(row: Row) -> str:
    """What is to be told of a row; empty where it is as it was."""
    if row.comparison is not None and row.comparison.grown > 0:
        return f"{name(row)} grew by {format_bytes(row.comparison.grown)}{_share(row.comparison)}{_why(row.comparison)}"
    serious = [finding for finding in row.findings if finding.severity != "note"]
    return f"{name(row)}: {serious[0].message}" if serious else ""


def _share(comparison: Comparison) -> str:
    found = share(comparison)
    return f" ({found})" if found else ""


def _why(comparison: Comparison) -> str:
    """The module with most of the growth and its line; where no module's tensors grew, the category."""
    modules: dict[str, list[Growth]] = {}
    for each in grouped_growth(each for each in comparison.growth if each.grown > 0):
        modules.setdefault(module(each), []).append(each)
    if modules:
        most = max(modules, key=lambda path: _total(modules[path]))
        source = next((short_source(each.source) for each in modules[most] if each.source), "")
        where = f"{most} at {source}" if source else most
        return f", most in {where} (+{format_bytes(_total(modules[most]))})"
    for word, (before, after) in category_changes(comparison).items():
        if after > before:
            return f", most in {word} (+{format_bytes(after - before)})"
    return ""


def _total(growth: Sequence[Growth]) -> int:
    return sum(each.grown for each in growth)
