"""The audit as SARIF 2.1.0 (OASIS): places with columns, fingerprints of rule, file and the line's text."""

from typing import Any

from memplan.audit.records import Audit
from memplan.audit.rules import RULES
from memplan.report import sarif
from memplan.report.audit.findings import LEVELS, Told, place, told
from memplan.report.draw.layout import clean
from memplan.versions import installed


def render(audit: Audit) -> str:
    """A log with one run.

    Args:
        audit: What was found; files relative to the repository's root.
    """
    notes = [clean(f"{place(each)}: {each.problem}") for each in audit.unread]
    rules = [RULES[code] for code in audit.rules]
    results = (_result(each, list(audit.rules)) for each in told(audit))
    return sarif.log(rules, installed("memplan"), notes, results)


def _result(each: Told, codes: list[str]) -> dict[str, Any]:
    issue = each.issue
    region = {
        "startLine": issue.line,
        "startColumn": issue.column,
        "endLine": issue.end_line,
        "endColumn": issue.end_column,
    }
    # A notebook's lines are not those of its file: the message says which cell.
    where = {"startLine": 1} if issue.cell is not None else region
    cell = f" (cell {issue.cell}, line {issue.line})" if issue.cell is not None else ""
    text = clean(f"{issue.message}{cell}. {each.rule.remedy}")
    location = sarif.location(issue.file, where)
    level = LEVELS[each.rule.priority]
    return sarif.result(issue.code, codes, level=level, text=text, place=location, identity=each.identity)
