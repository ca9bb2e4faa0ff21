"""A badge: what shields.io's endpoint badge reads (shields.io/badges/endpoint-badge)."""

import json

from memplan.gate.records import GateResult
from memplan.report.gate.findings import peak_of_limit
from memplan.report.gate.text import counts, state

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
    return peak_of_limit(result.rows[0])
