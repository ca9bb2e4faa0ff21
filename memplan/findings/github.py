"""Findings as annotations of a pull request's lines: workflow commands of GitHub Actions.

GitHub shows ten of a kind in each step and drops the others, so the tenth line says how many more there are. Escapes
as in github.com/actions/toolkit, packages/core/src/command.ts.
"""

from collections.abc import Mapping, Sequence

from memplan.findings.records import Finding, Findings, Severity
from memplan.findings.sentences import first_line, sentences, title
from memplan.text import clean, shorten

MOST = 10
"""Annotations of a kind that GitHub shows in each step; it drops the others."""
_TITLE_CELLS, _LINE_CELLS = 200, 1000
"""A check run takes titles of 255 characters, and messages of 64 KiB (docs.github.com, REST API, check runs)."""
_COMMANDS: Mapping[Severity, str] = {"emergency": "error", "error": "error", "warning": "warning", "note": "notice"}
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def render(findings: Findings) -> str:
    """One command a line, the worst first; nothing where nothing is found."""
    found, shown = findings.found, len(findings.found)
    shown = shown if shown <= MOST else MOST - 1
    further = [_further(found[shown:], findings.command)] if found[shown:] else []
    return "".join([*map(_annotation, found[:shown]), *further])


def _annotation(finding: Finding) -> str:
    place = finding.place
    properties = {"file": clean(place.file), "line": str(first_line(finding))} if place.file else {}
    if place.end_line and place.cell is None:
        properties["endLine"] = str(place.end_line)
    properties["title"] = shorten(title(finding), _TITLE_CELLS)
    return _command(finding, properties, "\n".join(shorten(part, _LINE_CELLS) for part in sentences(finding)))


def _further(rest: Sequence[Finding], command: str) -> str:
    """Those that are not shown, at the level of the worst."""
    codes = ", ".join(sorted({finding.code for finding in rest}))
    text = f"{len(rest)} more findings ({codes}) stand in the other reports of memplan {command}"
    return _command(rest[0], {"title": f"memplan {command}"}, text)


def _command(finding: Finding, properties: Mapping[str, str], text: str) -> str:
    listed = ",".join(f"{key}={_escaped(value, _PROPERTY)}" for key, value in properties.items())
    return f"::{_COMMANDS[finding.severity]} {listed}::{_escaped(text, _DATA)}\n"


def _escaped(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(char, char) for char in text)
