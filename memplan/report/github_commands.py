"""Workflow commands of GitHub Actions. Escapes as in github.com/actions/toolkit, packages/core/src/command.ts."""

from collections.abc import Mapping

MOST = 10
"""Annotations of a kind that GitHub shows in each step; it drops the others."""
TITLE_CELLS, LINE_CELLS = 200, 1000
"""A check run takes titles of 255 characters, and messages of 64 KiB (docs.github.com, REST API, check runs)."""
COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
"""Level → command."""
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def command(level: str, properties: Mapping[str, str], text: str) -> str:
    """One line, with its line break."""
    listed = ",".join(f"{key}={_escaped(value, _PROPERTY)}" for key, value in properties.items())
    return f"::{COMMANDS[level]} {listed}::{_escaped(text, _DATA)}\n"


def _escaped(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(char, char) for char in text)
