"""GitLab's Code Quality report (docs.gitlab.com/ci/testing/code_quality, "Code Quality report format").

GitLab compares the fingerprints of two branches: what is in both is not shown in a merge request.
"""

import json
from typing import Any

from memplan.gate.records import GateResult
from memplan.report.gate.findings import Told, one_line, told

SEVERITIES = {"error": "critical", "warning": "minor", "note": "info"}
"""Level → severity."""


def render(result: GateResult) -> str:
    """An array with one issue for each finding.

    Args:
        result: What was found; files relative to the repository's root.
    """
    return json.dumps([_issue(each) for each in told(result)], indent=2, sort_keys=True)


def _issue(each: Told) -> dict[str, Any]:
    finding = each.finding
    return {
        "description": one_line(each),
        "check_name": finding.code,
        "fingerprint": each.identity,
        "severity": SEVERITIES[finding.level],
        "location": {"path": finding.place.file, "lines": {"begin": max(1, finding.place.line)}},
    }
