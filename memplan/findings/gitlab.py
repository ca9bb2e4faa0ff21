"""GitLab's Code Quality report (docs.gitlab.com/ci/testing/code_quality, "Code Quality report format").

GitLab compares the fingerprints of two branches: what is in both is not shown in a merge request.
"""

import json
from collections.abc import Mapping
from typing import Any

from memplan.findings.records import Finding, Findings, Severity
from memplan.findings.sentences import first_line, one_line

_SEVERITIES: Mapping[Severity, str] = {
    "emergency": "blocker",
    "error": "critical",
    "warning": "minor",
    "note": "info",
}


def render(findings: Findings) -> str:
    """An array with one issue for each finding."""
    return json.dumps([_issue(finding) for finding in findings.found], indent=2, sort_keys=True)


def _issue(finding: Finding) -> dict[str, Any]:
    return {
        "description": one_line(finding),
        "check_name": finding.code,
        "fingerprint": finding.identity,
        "severity": _SEVERITIES[finding.severity],
        "location": {"path": finding.place.file, "lines": {"begin": first_line(finding)}},
    }
