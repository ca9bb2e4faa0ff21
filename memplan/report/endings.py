"""How a search ended, as reports say it."""

SYMBOLS = {"optimal": "✓", "feasible": "✓", "infeasible": "✗", "timed_out": "?"}
"""Outcome → symbol."""
WORDS = {"optimal": "OPTIMAL", "feasible": "FEASIBLE", "infeasible": "INFEASIBLE", "timed_out": "TIMED OUT"}
"""Outcome → words."""
STYLES = {"optimal": "bold green", "feasible": "bold green", "infeasible": "bold red", "timed_out": "bold magenta"}
"""Outcome → style of both."""

KINDS = {"optimal": "fits", "feasible": "fits", "infeasible": "oom", "timed_out": "tight"}
"""Outcome → the verdict in whose colour a page says it."""


def ending(outcome: str) -> str:
    """``✓ OPTIMAL``."""
    return f"{SYMBOLS[outcome]} {WORDS[outcome]}"
