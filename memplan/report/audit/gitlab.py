"""The audit as GitLab's Code Quality report."""

import json
from typing import Any

from memplan.audit.records import Audit
from memplan.report.audit.findings import LEVELS, Told, told
from memplan.report.draw.layout import clean
from memplan.report.gate.gitlab import SEVERITIES


def render(audit: Audit) -> str:
    """An array with one issue for each finding.

    Args:
        audit: What was found; files relative to the repository's root.
    """
    return json.dumps([_issue(each) for each in told(audit)], indent=2, sort_keys=True)


def _issue(each: Told) -> dict[str, Any]:
    issue = each.issue
    return {
        "description": clean(f"{issue.message}. {each.rule.remedy}"),
        "check_name": issue.code,
        "fingerprint": each.identity,
        "severity": SEVERITIES[LEVELS[each.rule.priority]],
        "location": {"path": issue.file, "lines": {"begin": issue.line if issue.cell is None else 1}},
    }
