"""What the audit found as every format tells it: the worst first, each with an identity that lasts."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from memplan.audit.records import PRIORITIES, Audit, AuditRule, Issue, Priority, Unread
from memplan.audit.rules import RULES

Level = Literal["error", "warning", "note"]
LEVELS: Mapping[Priority, Level] = {"high": "error", "medium": "warning", "low": "note"}
"""Priority → what CI systems call it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A finding with its rule."""

    issue: Issue
    """What was found."""
    rule: AuditRule
    """What it breaks."""
    identity: str
    """32 hexadecimal digits from rule, file and the line's text, unique in the audit. Line numbers do not count: the
    same finding keeps it while the code around it moves."""


def told(audit: Audit) -> list[Told]:
    """Every finding: high priority first, then by file and line."""
    seen: Counter[tuple[str, str, str]] = Counter()
    found = []
    for issue in audit.issues:
        key = (issue.code, issue.file, " ".join(issue.source.split()))
        digest = hashlib.sha256(json.dumps([*key, seen[key]]).encode(errors="replace")).hexdigest()
        found.append(Told(issue=issue, rule=RULES[issue.code], identity=digest[:32]))
        seen[key] += 1
    return sorted(found, key=lambda each: PRIORITIES.index(each.rule.priority))


def counts(audit: Audit) -> dict[Priority, int]:
    """Priority → findings, the worst first."""
    found = Counter(RULES[issue.code].priority for issue in audit.issues)
    return {priority: found[priority] for priority in PRIORITIES}


def worst_files(audit: Audit) -> list[tuple[str, dict[Priority, int]]]:
    """Files with findings, those with the most of high priority first."""
    found = []
    for file in audit.files:
        by = Counter(RULES[issue.code].priority for issue in file.issues)
        found += [(file.file, {priority: by[priority] for priority in PRIORITIES})] if file.issues else []
    return sorted(found, key=lambda each: ([-number for number in each[1].values()], each[0]))


def by_rule(audit: Audit) -> dict[str, int]:
    """Code → findings, high priority first, then the most."""
    found = Counter(issue.code for issue in audit.issues)
    order = sorted(found, key=lambda code: (PRIORITIES.index(RULES[code].priority), -found[code], code))
    return {code: found[code] for code in order}


def in_words(numbers: Mapping[Priority, int]) -> str:
    """``2 high, 5 medium``."""
    return ", ".join(f"{number} {priority}" for priority, number in numbers.items() if number)


def answer(audit: Audit) -> str:
    """The last line: how many, and of what priority."""
    total = len(audit.issues)
    if not total:
        return "no memory hazards found"
    return f"{total} finding{'s' if total != 1 else ''}: {in_words(counts(audit))}"


def place(found: Issue | Unread) -> str:
    """``train.py:41:9``, ``notes.ipynb:cell 3:2:1``."""
    cell = f":cell {found.cell}" if found.cell is not None else ""
    column = f":{found.column}" if isinstance(found, Issue) else ""
    return f"{found.file}{cell}:{found.line}{column}"
