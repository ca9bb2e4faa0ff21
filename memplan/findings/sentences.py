"""A finding in words, as forges show it."""

from memplan.findings.records import Finding
from memplan.findings.rules import RULES
from memplan.text import shorten

NAME_CELLS = 120
"""A longer name is cut in its middle."""


def sentences(finding: Finding) -> list[str]:
    """What is found, what to do, and what shows it."""
    message = f"{_subject(finding)}: {finding.message}" if finding.subject else finding.message
    return [part for part in (message, finding.fix, *finding.evidence) if part]


def one_line(finding: Finding) -> str:
    """The same for what takes a single line."""
    parts = sentences(finding)
    text = ". ".join(part.rstrip(".") for part in parts)
    rule = RULES.get(finding.code)
    # A remedy of the table is whole sentences.
    return f"{text}." if rule and parts[-1] == rule.remedy else text


def title(finding: Finding) -> str:
    """Rule and subject: ``MP001 predicted out of memory: llama-8b on h100-80g``."""
    rule = RULES.get(finding.code)
    about = f": {_subject(finding)}" if finding.subject else ""
    return f"{finding.code} {rule.title if rule else ''}{about}"


def _subject(finding: Finding) -> str:
    return " on ".join(shorten(name, NAME_CELLS) for name in finding.subject)


def first_line(finding: Finding) -> int:
    """The line that a forge shows it at, from 1; a notebook's lines are not those of its file."""
    return max(1, finding.place.line) if finding.place.cell is None else 1
