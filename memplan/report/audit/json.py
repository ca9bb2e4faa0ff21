"""The audit as JSON: lines and columns count from 1, keys are sorted, minor versions only add."""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from memplan.audit.records import Audit, Unread
from memplan.audit.rules import RULES
from memplan.report.audit.findings import Told, counts, told
from memplan.versions import installed

SCHEMA_VERSION = "1.0"


def render(audit: Audit) -> str:
    """The JSON report."""
    return json.dumps(document(audit), sort_keys=True, indent=2, allow_nan=False)


def document(audit: Audit) -> dict[str, Any]:
    """The audit as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "audit",
        "memplan_version": installed("memplan"),
        "paths": list(audit.paths),
        "summary": {
            "files": len(audit.files),
            "torch_files": sum(file.about_torch for file in audit.files),
            "lines": sum(file.lines for file in audit.files),
            "findings": dict(counts(audit)),
            "suppressed": sum(file.suppressed for file in audit.files),
            "adoption": dict(audit.adoption),
        },
        "rules": [_rule(code) for code in audit.rules],
        "findings": [_finding(each) for each in told(audit)],
        "unread": [_unread(each) for each in audit.unread],
        "timings": {"seconds": audit.seconds},
    }


def schema() -> Mapping[str, Any]:
    """The JSON Schema that every report obeys."""
    loaded: dict[str, Any] = json.loads((files("memplan.report") / "schema" / "audit-1.0.json").read_text("utf-8"))
    return loaded


def _rule(code: str) -> dict[str, str]:
    rule = RULES[code]
    return {
        "code": code,
        "title": rule.title,
        "priority": rule.priority,
        "confidence": rule.confidence,
        "meaning": rule.meaning,
        "remedy": rule.remedy,
    }


def _finding(each: Told) -> dict[str, Any]:
    issue = each.issue
    return {
        "code": issue.code,
        "priority": each.rule.priority,
        "confidence": each.rule.confidence,
        "file": issue.file,
        "cell": issue.cell,
        "line": issue.line,
        "column": issue.column,
        "end_line": issue.end_line,
        "end_column": issue.end_column,
        "message": issue.message,
        "fix": each.rule.remedy,
        "diff": issue.diff or None,
        "fingerprint": each.identity,
    }


def _unread(each: Unread) -> dict[str, Any]:
    return {"file": each.file, "cell": each.cell, "line": each.line, "problem": each.problem}
