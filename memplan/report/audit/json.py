"""The audit as JSON: lines and columns count from 1."""

from collections.abc import Callable, Mapping

from memplan.audit.records import Audit, FileAudit
from memplan.contract.document import Document, head, memplan_version
from memplan.contract.fields import Attribute, attribute
from memplan.contract.table import Table, made, or_null
from memplan.findings.identity import identified
from memplan.findings.records import AuditRule, Finding, Priority
from memplan.findings.rules import AUDIT
from memplan.report.audit.findings import counts


def _total(description: str, count: Callable[[FileAudit], int]) -> Attribute:
    return made(Audit, int, description, lambda audit: sum(map(count, audit.files)))


def _of_rule(name: str) -> Attribute:
    found = attribute(AuditRule, name)
    return found._replace(get=lambda finding: found.get(AUDIT[finding.code]))


DOCUMENT = Document(
    name="audit",
    root=Audit,
    tables={
        Audit: Table(
            keys={
                **head("audit"),
                "memplan_version": memplan_version,
                "summary": {
                    "files": made(Audit, int, "Files that were read.", lambda audit: len(audit.files)),
                    "torch_files": _total("Files that speak of PyTorch.", lambda file: file.about_torch),
                    "lines": _total("Lines of code, comments and nothing.", lambda file: file.lines),
                    "findings": made(Audit, Mapping[Priority, int], "Priority and number of findings.", counts),
                    "suppressed": _total("How many more findings comments excuse.", lambda file: file.suppressed),
                    "adoption": "adoption",
                },
                "rules": made(
                    Audit,
                    tuple[AuditRule, ...],
                    "What was looked for.",
                    lambda audit: [AUDIT[code] for code in audit.rules],
                ),
                "findings": made(
                    Audit,
                    tuple[Finding, ...],
                    "High priority first, then by file and line.",
                    lambda audit: identified(audit.findings),
                ),
                "pools": "pools",
                "unread": "unread",
                "timings": {"seconds": "seconds"},
            },
            omit=("files",),
        ),
        Finding: Table(
            keys={
                **{key: _of_rule(key) for key in ("priority", "confidence")},
                **{key: f"place.{key}" for key in ("file", "cell", "line", "column", "end_line", "end_column")},
                "diff": or_null("diff"),
                "fingerprint": "identity",
            },
            omit=("severity", "evidence", "subject"),
        ),
    },
)
render = DOCUMENT.render
