"""What every SARIF 2.1.0 log (OASIS) of memplan has: one run, its tool and rules, places below the root."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from memplan.rules import Rule

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"
"""Name of the repository's root, for whoever unpacks it anywhere."""
_LINK = re.compile(r"\[(?=[^\]]*\]\()")
_ABSOLUTE = re.compile(r"/|[A-Za-z]:/")


def log(rules: Iterable[Rule], version: str | None, notes: Iterable[str], results: Iterable[Mapping[str, Any]]) -> str:
    """A log with one run.

    Args:
        rules: All that may be named.
        version: Of memplan, where it is known.
        notes: What concerns no single result.
        results: Made by ``result``.
    """
    driver = {"name": "memplan", "rules": [_rule(each) for each in rules]}
    run = {
        "tool": {"driver": driver | ({"version": version} if version else {})},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"description": {"text": "The repository's root."}}},
        # Judged and found wanting is still done: what failed are the results.
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [{"level": "note", "message": message(note)} for note in notes],
            }
        ],
        "results": list(results),
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, sort_keys=True)


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.meaning},
        "help": {"text": rule.remedy},
    }


def result(
    code: str, codes: list[str], *, level: str, text: str, place: Mapping[str, Any], identity: str
) -> dict[str, Any]:
    """One finding.

    Args:
        code: Its rule.
        codes: Every rule of the log, in its order.
        level: ``error``, ``warning`` or ``note``.
        text: Plain, on one line.
        place: Made by ``location``.
        identity: What lasts from commit to commit. GitHub reads no other fingerprint than this one.
    """
    return {
        "ruleId": code,
        **({"ruleIndex": codes.index(code)} if code in codes else {}),
        "level": level,
        "message": message(text),
        "locations": [place],
        "partialFingerprints": {"primaryLocationLineHash": identity},
    }


def location(file: str, region: Mapping[str, int]) -> dict[str, Any]:
    """A place in a file, from the repository's root or from that of the disk."""
    uri = quote(file, errors="replace")
    absolute = _ABSOLUTE.match(file) is not None
    artifact = {"uri": f"file:///{uri.lstrip('/')}"} if absolute else {"uri": uri, "uriBaseId": ROOT}
    return {"physicalLocation": {"artifactLocation": artifact, "region": dict(region)}}


def message(text: str) -> dict[str, str]:
    """Plain text: braces would be placeholders (3.11.5), and ``[text](1)`` a link (3.11.6)."""
    return {"text": _LINK.sub(r"\\[", text.replace("{", "{{").replace("}", "}}"))}
