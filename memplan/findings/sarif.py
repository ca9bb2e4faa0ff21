"""SARIF 2.1.0 (OASIS), as GitHub's code scanning takes it.

``primaryLocationLineHash`` is the one fingerprint that GitHub reads. Its upload action would make it of the line's
text, and one line may be the cause on several GPUs; ours is the finding's identity. The action warns that the two
differ.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from memplan.findings.records import Finding, Findings, Place, Rule, Severity
from memplan.findings.sentences import first_line, one_line

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"
"""Name of the repository's root, for whoever unpacks it anywhere."""
_LEVELS: Mapping[Severity, str] = {"emergency": "error", "error": "error", "warning": "warning", "note": "note"}
_LINK = re.compile(r"\[(?=[^\]]*\]\()")
_ABSOLUTE = re.compile(r"/|[A-Za-z]:/")


def render(findings: Findings) -> str:
    """A log with one run."""
    codes = [rule.code for rule in findings.rules]
    driver = {"name": "memplan", "rules": [_rule(rule) for rule in findings.rules]}
    notes = [{"level": "note", "message": _message(note)} for note in findings.notes]
    run = {
        "tool": {"driver": driver | ({"version": findings.version} if findings.version else {})},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"description": {"text": "The repository's root."}}},
        # Judged and found wanting is still done: what failed are the results.
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notes}],
        "results": [_result(finding, codes) for finding in findings.found],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, sort_keys=True)


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.meaning},
        "help": {"text": rule.remedy},
    }


def _result(finding: Finding, codes: Sequence[str]) -> dict[str, Any]:
    place = finding.place
    if place.cell is not None:
        # A notebook's lines are not those of its file: the message says which cell.
        finding = replace(finding, message=f"{finding.message} (cell {place.cell}, line {place.line})")
    return {
        "ruleId": finding.code,
        **({"ruleIndex": codes.index(finding.code)} if finding.code in codes else {}),
        "level": _LEVELS[finding.severity],
        "message": _message(one_line(finding)),
        "locations": [_location(place, first_line(finding))] if place.file else [],
        "partialFingerprints": {"primaryLocationLineHash": finding.identity},
    }


def _location(place: Place, first: int) -> dict[str, Any]:
    """A place in a file, from the repository's root or from that of the disk."""
    uri = quote(place.file, errors="replace")
    absolute = _ABSOLUTE.match(place.file) is not None
    artifact = {"uri": f"file:///{uri.lstrip('/')}"} if absolute else {"uri": uri, "uriBaseId": ROOT}
    further = {"startColumn": place.column, "endLine": place.end_line, "endColumn": place.end_column}
    known = {name: number for name, number in further.items() if number is not None and place.cell is None}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": first, **known}}}


def _message(text: str) -> dict[str, str]:
    """Plain text: braces would be placeholders (3.11.5), and ``[text](1)`` a link (3.11.6)."""
    return {"text": _LINK.sub(r"\\[", text.replace("{", "{{").replace("}", "}}"))}
