"""Workflow commands of GitHub Actions, which become annotations of a pull request's lines.

GitHub shows ten of a kind in each step and drops the others, so the tenth line says how many more there are. Escapes as
in github.com/actions/toolkit, packages/core/src/command.ts.
"""

from memplan.gate.records import GateResult
from memplan.report.gate_findings import Told, name, told, words
from memplan.report.layout import clean, shorten
from memplan.rules import RULES

MOST = 10
_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
"""Level → command."""
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}
_TITLE_CELLS, _LINE_CELLS = 200, 1000
"""A check run takes titles of 255 characters, and messages of 64 KiB (docs.github.com, REST API, check runs)."""


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
        "title": shorten(title, _TITLE_CELLS),
    }
    text = "\n".join(shorten(line, _LINE_CELLS) for line in words(each))
    return _line(_COMMANDS[finding.level], properties, text)


def _further(rest: list[Told]) -> str:
    """Those that are not shown, at the level of the worst."""
    codes = ", ".join(sorted({each.finding.code for each in rest}))
    text = f"{len(rest)} more findings ({codes}) stand in the other reports of memplan gate"
    return _line(_COMMANDS[rest[0].finding.level], {"title": "memplan gate"}, text)


def _line(command: str, properties: dict[str, str], text: str) -> str:
    listed = ",".join(f"{key}={_escaped(value, _PROPERTY)}" for key, value in properties.items())
    return f"::{command} {listed}::{_escaped(text, _DATA)}\n"


def _escaped(text: str, escapes: dict[str, str]) -> str:
    return "".join(escapes.get(char, char) for char in text)
