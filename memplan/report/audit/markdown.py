"""The audit as GitHub's Markdown: the summary of a step, or a page of an audit report."""

from memplan.audit.records import Audit
from memplan.findings.identity import identified
from memplan.findings.records import Finding
from memplan.findings.rules import AUDIT
from memplan.report import markdown
from memplan.report.audit import pools
from memplan.report.audit.findings import answer, by_rule, in_words, place, worst_files

MARKER = "<!-- memplan:audit -->"
_MOST = 200
"""Findings that are listed: GitHub drops a step's summary above 1 MiB whole."""
_FILES = 10


def render(audit: Audit) -> str:
    """Write what the audit found."""
    lines = sum(file.lines for file in audit.files)
    head = [
        MARKER,
        f"### memplan audit: {markdown.sentence(answer(audit))}",
        "",
        f"{len(audit.files):,} files, {lines:,} lines",
    ]
    blocks = [*_rules(audit), *_files(audit), *_findings(audit), *_adoption(audit), *_pools(audit), *_unread(audit)]
    return "\n".join([*head, *blocks]) + "\n"


def _rules(audit: Audit) -> list[str]:
    rows = [
        (markdown.code(code), AUDIT[code].priority, markdown.sentence(AUDIT[code].title), str(number))
        for code, number in by_rule(audit).items()
    ]
    return ["", *markdown.table(("Rule", "Priority", "Hazard", "Findings:"), rows)] if rows else []


def _files(audit: Audit) -> list[str]:
    found = worst_files(audit)
    rows = [(markdown.code(name), in_words(numbers)) for name, numbers in found[:_FILES]]
    return ["", *markdown.table(("File", "Findings"), rows)] if len(found) > 1 else []


def _findings(audit: Audit) -> list[str]:
    found = identified(audit.findings)
    rows = [_cells(each) for each in found[:_MOST]]
    more = [f"\n{len(found) - _MOST} more are in the other reports."] if len(found) > _MOST else []
    return ["", *markdown.table(("Rule", "Place", "What", "Do"), rows), *more] if rows else []


def _cells(finding: Finding) -> tuple[str, ...]:
    return (
        markdown.code(finding.code),
        markdown.code(place(finding.place)),
        markdown.sentence(finding.message),
        markdown.sentence(finding.fix),
    )


def _adoption(audit: Audit) -> list[str]:
    rows = [(markdown.sentence(tool), str(number)) for tool, number in audit.adoption.items()]
    return ["", *markdown.table(("Memory tool in use", "Files:"), rows)] if rows else []


def _pools(audit: Audit) -> list[str]:
    rows = [(markdown.sentence(name), markdown.sentence(what)) for name, what in pools.rows(audit.pools)]
    if not rows:
        return []
    remarks = [f"- {markdown.sentence(each)}" for each in pools.remarks(audit.pools)]
    return ["", *markdown.table(("Pools of memory", ""), rows), "", *remarks]


def _unread(audit: Audit) -> list[str]:
    return [f"\n- not read: {markdown.code(place(each))} {markdown.sentence(each.problem)}" for each in audit.unread]
