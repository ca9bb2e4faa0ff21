"""Findings in order, each with an identity that lasts: forges compare two branches by it."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from memplan.findings.records import SEVERITIES, Finding


def identified(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Give findings their identities, 32 hexadecimal digits each, and put the worst first.

    Made of the rule and of what the finding is about: the names of ``subject``, else the file and the text of the line.
    Neither figures nor line numbers count, so that a finding keeps it from commit to commit.

    Alike ones are told apart by their order.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    made = []
    for finding in findings:
        place = finding.place
        key = (finding.code, *(finding.subject or (place.file, " ".join(place.text.split()))))
        digest = hashlib.sha256(json.dumps([*key, seen[key]]).encode(errors="replace")).hexdigest()
        made.append(replace(finding, identity=digest[:32]))
        seen[key] += 1
    return tuple(sorted(made, key=lambda finding: SEVERITIES.index(finding.severity)))
