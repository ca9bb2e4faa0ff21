"""What is found about memory, whoever finds it: gate, audit, monitor or leak detector. Torch-free."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["emergency", "error", "warning", "note"]
"""``emergency``: the next step may run out of memory (the monitor alone says so). ``error``: fails, or leaks.
``warning``: would fail where it counted, or costs a peak too high. ``note``: judges nothing."""
SEVERITIES: tuple[Severity, ...] = ("emergency", "error", "warning", "note")
"""The worst first."""
Priority = Literal["high", "medium", "low"]
"""``high``: memory grows with every step, or a graph is kept whole. ``medium``: a peak too high. ``low``: advice."""
Confidence = Literal["high", "medium", "low"]
"""How much of the hazard the source itself shows, and how much is taken from names."""
PRIORITIES: tuple[Priority, ...] = ("high", "medium", "low")
"""The worst first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What can be found."""

    code: str
    """Stable name, ``MP001``."""
    title: str
    """What is found."""
    meaning: str
    """When it is reported."""
    remedy: str
    """What to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRule(Rule):
    """One hazard that can be seen in source code."""

    priority: Priority
    """How much it costs where it is real."""
    confidence: Confidence
    """How often it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where something is, for annotations."""

    file: str
    """From the project's folder or the working directory where it lies below, with forward slashes; may be empty."""
    line: int = 1
    """From 1, in the file or the cell."""
    column: int | None = None
    """From 1, in characters; None: the whole line is meant."""
    end_line: int | None = None
    """Last line of what is meant; None: the first."""
    end_column: int | None = None
    """After its last character, from 1."""
    cell: int | None = None
    """Code cell of a notebook, from 1; None: a plain file."""
    text: str = ""
    """The line itself, where it was read."""


NOWHERE = Place(file="")
"""Of what no line is the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One rule that is not met."""

    code: str
    """``MP001`` …; ``memplan explain CODE``."""
    severity: Severity
    """How it counts."""
    message: str
    """One sentence with figures or with the names of the code."""
    place: Place = NOWHERE
    """The line that is the cause, or where it is decided."""
    evidence: tuple[str, ...] = ()
    """What shows it, in sentences: what grew, who keeps it."""
    fix: str = ""
    """What to do."""
    diff: str = ""
    """A unified diff that mends it, where that is safe."""
    subject: tuple[str, ...] = ()
    """What it is about, by names that last (job and GPU); empty: the line of its place."""
    identity: str = ""
    """Unique among all that was found together, and the same from commit to commit
    (``memplan.findings.identity``); empty before they stand together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All that one command found, as forges and CI systems are told of it: texts on one line, names cleaned."""

    command: str
    """``gate``."""
    found: tuple[Finding, ...]
    """The worst first, each with its identity."""
    rules: tuple[Rule, ...]
    """All that were looked for."""
    version: str | None
    """Of the memplan that found them; None where nobody knows."""
    notes: tuple[str, ...] = ()
    """What concerns none of them."""
