"""Schemas and readers of the formats of others."""

import json
from functools import cache
from pathlib import Path

import jsonschema

SCHEMAS = Path(__file__).parent / "schemas"


LINES = {"type": "object", "required": ["begin"], "properties": {"begin": {"type": "integer", "minimum": 1}}}


CODE_QUALITY = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "minLength": 1},
            "fingerprint": {"type": "string", "minLength": 1},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "properties": {"path": {"type": "string"}, "lines": LINES},
            },
        },
    },
}
"""docs.gitlab.com/ci/testing/code_quality, "Code Quality report format"."""


@cache
def sarif_schema() -> jsonschema.Draft4Validator:
    schema = json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text(encoding="utf-8"))
    return jsonschema.Draft4Validator(schema, format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER)


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Read workflow commands as the runner does (github.com/actions/runner, ActionCommand.cs)."""

    def unescaped(value: str, codes: str) -> str:
        for code in codes.split():
            value = value.replace(code, chr(int(code[1:], 16)))
        return value

    found = []
    for line in text.removesuffix("\n").split("\n") if text else []:
        end = line.index("::", 2)
        command, _, listed = line[2:end].partition(" ")
        pairs = (pair.split("=", 1) for pair in listed.split(","))
        properties = {key: unescaped(value, "%0D %0A %3A %2C %25") for key, value in pairs}
        assert line.startswith("::")
        found.append((command, properties, unescaped(line[end + 2 :], "%0D %0A %25")))
    return found
