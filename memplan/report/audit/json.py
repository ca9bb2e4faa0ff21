"""The audit as JSON: lines and columns count from 1, keys are sorted, minor versions only add."""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from memplan.audit.records import Audit, Unread
from memplan.findings.identity import identified
from memplan.findings.records import Finding
from memplan.findings.rules import AUDIT
from memplan.report.audit.findings import counts
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
        "findings": [_finding(each) for each in identified(audit.findings)],
        "unread": [_unread(each) for each in audit.unread],
        "timings": {"seconds": audit.seconds},
    }


def schema() -> Mapping[str, Any]:
    """The JSON Schema that every report obeys."""
    loaded: dict[str, Any] = json.loads((files("memplan.report") / "schema" / "audit-1.0.json").read_text("utf-8"))
    return loaded


def _rule(code: str) -> dict[str, str]:
    rule = AUDIT[code]
    return {
        "code": code,
        "title": rule.title,
        "priority": rule.priority,
        "confidence": rule.confidence,
        "meaning": rule.meaning,
        "remedy": rule.remedy,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    rule, place = AUDIT[finding.code], finding.place
    return {
        "code": finding.code,
        "priority": rule.priority,
        "confidence": rule.confidence,
        "file": place.file,
        "cell": place.cell,
        "line": place.line,
        "column": place.column,
        "end_line": place.end_line,
        "end_column": place.end_column,
        "message": finding.message,
        "fix": finding.fix,
        "diff": finding.diff or None,
        "fingerprint": finding.identity,
    }


def _unread(each: Unread) -> dict[str, Any]:
    return {"file": each.file, "cell": each.cell, "line": each.line, "problem": each.problem}
