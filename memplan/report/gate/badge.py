"""A badge: what shields.io's endpoint badge reads (shields.io/badges/endpoint-badge)."""

import json

from memplan.gate.records import GateResult
from memplan.report.gate.findings import limit_bytes, peak, with_figures
from memplan.report.gate.text import counts, state
from memplan.units import format_bytes

COLORS = {"failed": "red", "unknown": "lightgrey", "warned": "yellow", "passed": "brightgreen"}
"""State of a row → colour, the worst first."""


def render(result: GateResult) -> str:
    """JSON to be put where shields.io finds it."""
    states = {state(row) for row in result.rows} or {"unknown"}
    color = next(color for name, color in COLORS.items() if name in states)
    badge = {"schemaVersion": 1, "label": "GPU memory", "message": _message(result), "color": color}
    return json.dumps(badge, indent=2, sort_keys=True)


def _message(result: GateResult) -> str:
    """One job's peak; of several, how many pass."""
    if not result.rows:
        return "no jobs"
    if len(result.rows) > 1:
        return counts(result)
    (row,) = result.rows
    limit = limit_bytes(row)
    return f"{peak(row)} of {format_bytes(limit)}" if limit and with_figures(row) else peak(row)
