"""Errors that reach the user: what happened, where, and what to do, with the exit code that they mean."""

import re
from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """How a memplan process ends (docs/reference: exit codes)."""

    DONE = 0
    """The command did its job; for the gate: every job is within policy."""
    POLICY = 1
    """Only ``gate`` and ``--fail-on``: predicted OOM, budget exceeded or regression."""
    USAGE = 2
    """Wrong usage or configuration, or an internal error."""
    UNKNOWN = 3
    """No trustworthy estimate could be made, or it is proved that nothing fits."""
    NOT_FOUND = 4
    """A search ended without an answer, and it is not proved that there is none."""
    INTERRUPTED = 130
    """Ctrl-C; the shell's convention: 128 + SIGINT."""


class MemplanError(Exception):
    """A failure that is explained rather than traced back.

    Args:
        what: One sentence saying what happened.
        where: File and line, option or field it happened at, if known.
        hint: What the user can do about it, if known.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes with every field (plain ``Exception`` would keep ``what`` alone)."""
        return _rebuild, (type(self), self.what, self.where, self.hint)

    def __str__(self) -> str:
        """All parts on their own lines, as the command line prints them after ``error:``."""
        lines = [self.what]
        if self.where:
            lines.append(f"  at {self.where}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


def _rebuild(kind: type[MemplanError], what: str, where: str | None, hint: str | None) -> MemplanError:
    return kind(what, where=where, hint=hint)


class UsageError(MemplanError):
    """A wrong option, a missing file, an unknown name: the user can correct the command."""

    exit_code = ExitCode.USAGE


def several(whats: Sequence[str], *, hint: str | None = None) -> UsageError:
    """One error for everything that is wrong with what was asked, at least one thing."""
    what = "\n  - ".join(["several things are wrong:", *whats]) if len(whats) > 1 else whats[0]
    return UsageError(what, hint=hint)


def in_one_line(error: MemplanError) -> str:
    """Return what happened, where and what to do; an option that is named first is what the error stands at."""
    where = f" ({error.where.removeprefix('--')})" if error.where else ""
    return f"{_OPTION.sub('', error.what)}{where}" + (f"; {error.hint}" if error.hint else "")


_OPTION = re.compile(r"^--[a-z-]+ ")


class EstimateError(MemplanError):
    """The user's code or an op stands in the way of a trustworthy estimate."""

    exit_code = ExitCode.UNKNOWN
