"""The JSON of ``memplan monitor``, contract 1.0: integers are bytes, keys are sorted, minor versions only add."""

import json
from dataclasses import asdict
from typing import Any

from memplan.findings.rules import RULES
from memplan.runtime.monitor.log import SCHEMA_VERSION, check_document, plan_document
from memplan.runtime.monitor.outcome import Change, Outcome, Peak, PostMortem


def render(outcome: Outcome) -> str:
    """Everything about a run."""
    return json.dumps(document(outcome), sort_keys=True, indent=2, allow_nan=False)


def document(outcome: Outcome) -> dict[str, Any]:
    """A run as plain data."""
    ending = outcome.ending
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "monitor",
        "run": list(outcome.command),
        "plan": None if outcome.plan is None else plan_document(outcome.plan),
        "ending": {
            "exit_code": ending.exit_code,
            "signal": -ending.code if ending.code < 0 else None,
            "wall_seconds": ending.seconds,
            "why": ending.why,
            "ooms": ending.ooms,
            "oom_kills": ending.oom_kills,
        },
        "checks": outcome.checks,
        "steps": outcome.steps,
        "level": outcome.level.word,
        "changes": [_change(change) for change in outcome.changes],
        "peaks": [_peak(peak) for peak in outcome.peaks],
        "resident_bytes": outcome.resident,
        "curve": {
            "seconds": [seconds for seconds, _, _ in outcome.curve],
            "allocated_bytes": [allocated for _, allocated, _ in outcome.curve],
            "reserved_bytes": [reserved for _, _, reserved in outcome.curve],
        },
        "recommendations": [asdict(each) for each in outcome.recommendations],
        "post_mortem": None if outcome.post_mortem is None else _post_mortem(outcome.post_mortem),
        "notes": list(outcome.notes),
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "seconds": change.seconds,
        "step": change.step,
        "level": change.level.word,
        "sentence": change.sentence,
    }


def _peak(peak: Peak) -> dict[str, Any]:
    return {
        "device": peak.device,
        "name": peak.name,
        "rank": peak.rank,
        "total_bytes": peak.total,
        "used_bytes": peak.used,
        "allocated_bytes": peak.allocated,
        "reserved_bytes": peak.reserved,
        "figure": peak.figure or None,
        "measured_bytes": peak.measured,
        "predicted_bytes": peak.predicted,
        "predicted_high_bytes": peak.predicted_high,
        "fragmentation": peak.fragmentation,
    }


def _post_mortem(found: PostMortem) -> dict[str, Any]:
    rule = RULES[found.code]
    return {
        "code": found.code,
        "symptom": rule.title,
        "cause": rule.meaning,
        "fix": rule.remedy,
        "sentence": found.sentence,
        "prediction": found.prediction,
        "snapshot": found.snapshot or None,
        "last": [check_document(check) for check in found.last],
    }
