"""The audit's findings as annotations of a pull request's lines: ten at most, and the last says how many more."""

from memplan.audit.records import Audit
from memplan.report.audit.findings import LEVELS, Told, told
from memplan.report.draw.layout import clean, shorten
from memplan.report.github_commands import LINE_CELLS, MOST, TITLE_CELLS, command


def render(audit: Audit) -> str:
    """One command a line, high priority first; nothing where nothing is found.

    Args:
        audit: What was found; files relative to the repository's root.
    """
    found = told(audit)
    shown, rest = (found, []) if len(found) <= MOST else (found[: MOST - 1], found[MOST - 1 :])
    return "".join(map(_command, shown)) + (_further(rest) if rest else "")


def _command(each: Told) -> str:
    issue = each.issue
    # A notebook's lines are not those of its file.
    line = {"line": str(issue.line), "endLine": str(issue.end_line)} if issue.cell is None else {"line": "1"}
    title = shorten(f"{issue.code} {each.rule.title}", TITLE_CELLS)
    text = "\n".join(shorten(part, LINE_CELLS) for part in (issue.message, each.rule.remedy))
    return command(LEVELS[each.rule.priority], {"file": clean(issue.file), **line, "title": title}, text)


def _further(rest: list[Told]) -> str:
    codes = ", ".join(sorted({each.issue.code for each in rest}))
    text = f"{len(rest)} more findings ({codes}) stand in the other reports of memplan audit"
    return command(LEVELS[rest[0].rule.priority], {"title": "memplan audit"}, text)
