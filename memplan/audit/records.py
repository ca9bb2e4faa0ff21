"""What the audit finds: plain data between its stages."""

from collections.abc import Mapping
from dataclasses import dataclass

from memplan.audit.pool_records import EMPTY_CENSUS, NO_POOLS, FilePools, PoolCensus
from memplan.findings.records import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One replacement in a source text, in characters."""

    line: int
    """First line, from 1."""
    column: int
    """First character, from 0."""
    end_line: int
    """Last line."""
    end_column: int
    """After the last character."""
    text: str
    """What stands there instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A hazard in one source text, before anybody asked for it."""

    code: str
    """``MA001`` …"""
    line: int
    """From 1."""
    column: int
    """From 0, in characters."""
    end_line: int
    """Last line of what is meant: a comment on any of its lines can excuse it."""
    end_column: int
    """After its last character."""
    message: str
    """One sentence with the names of the code."""
    edits: tuple[Edit, ...] = ()
    """What would mend it, where that is safe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A file, or a cell, that could not be read as Python."""

    file: str
    """As it was reached."""
    cell: int | None
    """Code cell of a notebook; None: the whole file."""
    line: int
    """Where it breaks off, from 1; 1 where nobody knows."""
    problem: str
    """What stands in the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAudit:
    """One file."""

    file: str
    """As it was reached."""
    lines: int
    """Of code, comments and nothing."""
    findings: tuple[Finding, ...]
    """In the order of the file; each with the text of its line."""
    suppressed: int
    """How many more a comment excuses."""
    unread: tuple[Unread, ...]
    """What of it could not be read."""
    tools: frozenset[str]
    """Names of ``inspect.TOOLS`` that it uses."""
    about_torch: bool
    """Does it speak of PyTorch at all?"""
    pools: FilePools = NO_POOLS
    """Its pools of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The whole answer."""

    paths: tuple[str, ...]
    """As typed."""
    files: tuple[FileAudit, ...]
    """By name."""
    rules: tuple[str, ...]
    """Codes that were looked for."""
    pools: PoolCensus = EMPTY_CENSUS
    """Pools of memory in all files together."""
    seconds: float = 0.0
    """Wall time."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them, in the order of the files."""
        return tuple(finding for file in self.files for finding in file.findings)

    @property
    def unread(self) -> tuple[Unread, ...]:
        """Everything that could not be read."""
        return tuple(each for file in self.files for each in file.unread)

    @property
    def adoption(self) -> Mapping[str, int]:
        """Memory tool → files that use it, the most used first."""
        counts = {tool: sum(tool in file.tools for file in self.files) for tool in set().union(*_tools(self))}
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _tools(audit: Audit) -> list[frozenset[str]]:
    return [frozenset(), *(file.tools for file in audit.files)]
