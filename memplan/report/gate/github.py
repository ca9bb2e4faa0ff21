"""The gate's findings as annotations of a pull request's lines.

GitHub shows ten of a kind in each step and drops the others, so the tenth line says how many more there are.
"""

from memplan.gate.records import GateResult
from memplan.report.draw.layout import clean, shorten
from memplan.report.gate.findings import Told, name, told, words
from memplan.report.github_commands import LINE_CELLS, MOST, TITLE_CELLS, command
from memplan.rules import RULES


def render(result: GateResult) -> str:
    """One command a line, errors first; nothing where nothing is found.

    Args:
        result: What was found; files relative to the repository's root.
    """
    found = told(result)
    shown, rest = (found, []) if len(found) <= MOST else (found[: MOST - 1], found[MOST - 1 :])
    return "".join(map(_command, shown)) + (_further(rest) if rest else "")


def _command(each: Told) -> str:
    finding = each.finding
    rule = RULES.get(finding.code)
    title = f"{finding.code} {rule.title if rule else ''}: {name(each.row)}"
    properties = {
        "file": clean(finding.place.file),
        "line": str(max(1, finding.place.line)),
        "title": shorten(title, TITLE_CELLS),
    }
    text = "\n".join(shorten(line, LINE_CELLS) for line in words(each))
    return command(finding.level, properties, text)


def _further(rest: list[Told]) -> str:
    """Those that are not shown, at the level of the worst."""
    codes = ", ".join(sorted({each.finding.code for each in rest}))
    text = f"{len(rest)} more findings ({codes}) stand in the other reports of memplan gate"
    return command(rest[0].finding.level, {"title": "memplan gate"}, text)
