"""SARIF 2.1.0 (OASIS), as GitHub's code scanning takes it.

``primaryLocationLineHash`` is the one fingerprint that GitHub reads. Its upload action would make it of the line's
text, and one line may be the cause on several GPUs; ours is of rule, job and GPU. The action warns that the two differ.
"""

import json
import re
from typing import Any
from urllib.parse import quote

from memplan.gate.records import GateResult, Place
from memplan.report.gate_findings import Told, one_line, plain, told, versions
from memplan.rules import RULES

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"
"""Name of the repository's root, for whoever unpacks it anywhere."""
_LINK = re.compile(r"\[(?=[^\]]*\]\()")
_ABSOLUTE = re.compile(r"/|[A-Za-z]:/")


def render(result: GateResult) -> str:
    """A log with one run.

    Args:
        result: What was found; files relative to the repository's root.
    """
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(result)]}
    return json.dumps(log, indent=2, sort_keys=True)


def _run(result: GateResult) -> dict[str, Any]:
    return {
        "tool": {"driver": _driver(result)},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"description": {"text": "The repository's root."}}},
        # Judged and found wanting is still done: what failed are the results.
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {"level": "note", "message": _message(plain(note))} for note in result.notes
                ],
            }
        ],
        "results": [_result(each) for each in told(result)],
    }


def _driver(result: GateResult) -> dict[str, Any]:
    rules = [
        {
            "id": rule.code,
            "shortDescription": {"text": rule.title},
            "fullDescription": {"text": rule.meaning},
            "help": {"text": rule.remedy},
        }
        for rule in RULES.values()
    ]
    made = versions(result)
    return {"name": "memplan", "rules": rules, **({"version": made["memplan"]} if "memplan" in made else {})}


def _result(each: Told) -> dict[str, Any]:
    finding = each.finding
    index = {"ruleIndex": list(RULES).index(finding.code)} if finding.code in RULES else {}
    return {
        "ruleId": finding.code,
        **index,
        "level": finding.level,
        "message": _message(one_line(each)),
        "locations": [_location(finding.place)],
        "partialFingerprints": {"primaryLocationLineHash": each.identity},
    }


def _location(place: Place) -> dict[str, Any]:
    uri = quote(place.file, errors="replace")
    absolute = _ABSOLUTE.match(place.file) is not None
    artifact = {"uri": f"file:///{uri.lstrip('/')}"} if absolute else {"uri": uri, "uriBaseId": ROOT}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": max(1, place.line)}}}


def _message(text: str) -> dict[str, str]:
    """Plain text: braces would be placeholders (3.11.5), and ``[text](1)`` a link (3.11.6)."""
    return {"text": _LINK.sub(r"\\[", text.replace("{", "{{").replace("}", "}}"))}
