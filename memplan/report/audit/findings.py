"""What the audit found as every format tells it, and its numbers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from memplan.audit.records import Audit, Unread
from memplan.findings.identity import identified
from memplan.findings.records import PRIORITIES, Findings, Place, Priority
from memplan.findings.rules import AUDIT
from memplan.text import clean
from memplan.versions import installed


def findings_of(audit: Audit) -> Findings:
    """What the audit found, as forges are told of it; files relative to the repository's root."""
    return Findings(
        command="audit",
        found=tuple(replace(finding, message=clean(finding.message)) for finding in identified(audit.findings)),
        rules=tuple(AUDIT[code] for code in audit.rules),
        version=installed("memplan"),
        notes=tuple(clean(f"{place(unread)}: {unread.problem}") for unread in audit.unread),
    )


def counts(audit: Audit) -> dict[Priority, int]:
    """Priority → findings, the worst first."""
    found = Counter(AUDIT[finding.code].priority for finding in audit.findings)
    return {priority: found[priority] for priority in PRIORITIES}


def worst_files(audit: Audit) -> list[tuple[str, dict[Priority, int]]]:
    """Files with findings, those with the most of high priority first."""
    found = []
    for file in audit.files:
        by = Counter(AUDIT[finding.code].priority for finding in file.findings)
        found += [(file.file, {priority: by[priority] for priority in PRIORITIES})] if file.findings else []
    return sorted(found, key=lambda each: ([-number for number in each[1].values()], each[0]))


def by_rule(audit: Audit) -> dict[str, int]:
    """Code → findings, high priority first, then the most."""
    found = Counter(finding.code for finding in audit.findings)
    order = sorted(found, key=lambda code: (PRIORITIES.index(AUDIT[code].priority), -found[code], code))
    return {code: found[code] for code in order}


def in_words(numbers: Mapping[Priority, int]) -> str:
    """``2 high, 5 medium``."""
    return ", ".join(f"{number} {priority}" for priority, number in numbers.items() if number)


def answer(audit: Audit) -> str:
    """The last line: how many, and of what priority."""
    total = len(audit.findings)
    if not total:
        return "no memory hazards found"
    return f"{total} finding{'s' if total != 1 else ''}: {in_words(counts(audit))}"


def place(where: Place | Unread) -> str:
    """``train.py:41:9``, ``notes.ipynb:cell 3:2:1``."""
    cell = f":cell {where.cell}" if where.cell is not None else ""
    column = f":{where.column}" if isinstance(where, Place) else ""
    return f"{where.file}{cell}:{where.line}{column}"
