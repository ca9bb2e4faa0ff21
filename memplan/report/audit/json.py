"""The audit as JSON: lines and columns count from 1."""

from collections.abc import Mapping

from memplan.audit.records import Audit
from memplan.contract.document import Document, head, memplan_version
from memplan.contract.table import Table, or_null
from memplan.findings.identity import identified
from memplan.findings.records import AuditRule, Confidence, Finding, Priority
from memplan.findings.rules import AUDIT
from memplan.report.audit.findings import counts


def _files(audit: Audit) -> int:
    """Files that were read."""
    return len(audit.files)


def _torch_files(audit: Audit) -> int:
    """Files that speak of PyTorch."""
    return sum(file.about_torch for file in audit.files)


def _lines(audit: Audit) -> int:
    """Lines of code, comments and nothing."""
    return sum(file.lines for file in audit.files)


def _suppressed(audit: Audit) -> int:
    """How many more findings comments excuse."""
    return sum(file.suppressed for file in audit.files)


def _counts(audit: Audit) -> Mapping[Priority, int]:
    """Priority and number of findings."""
    return counts(audit)


def _rules(audit: Audit) -> tuple[AuditRule, ...]:
    """What was looked for."""
    return tuple(AUDIT[code] for code in audit.rules)


def _findings(audit: Audit) -> tuple[Finding, ...]:
    """High priority first, then by file and line."""
    return identified(audit.findings)


def _priority(finding: Finding) -> Priority:
    """How much it costs where it is real."""
    return AUDIT[finding.code].priority


def _confidence(finding: Finding) -> Confidence:
    """How often it is."""
    return AUDIT[finding.code].confidence


DOCUMENT = Document(
    name="audit",
    root=Audit,
    tables={
        Audit: Table(
            keys={
                **head("audit"),
                "memplan_version": memplan_version,
                "summary": {
                    "files": _files,
                    "torch_files": _torch_files,
                    "lines": _lines,
                    "findings": _counts,
                    "suppressed": _suppressed,
                    "adoption": "adoption",
                },
                "rules": _rules,
                "findings": _findings,
                "unread": "unread",
                "timings": {"seconds": "seconds"},
            },
            omit=("files",),
        ),
        Finding: Table(
            keys={
                "priority": _priority,
                "confidence": _confidence,
                **{key: f"place.{key}" for key in ("file", "cell", "line", "column", "end_line", "end_column")},
                "diff": or_null("diff"),
                "fingerprint": "identity",
            },
            omit=("severity", "evidence", "subject"),
        ),
    },
)
render = DOCUMENT.render
