"""What is wrong with what was typed: every complaint at once."""

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from memplan.cli.options import CHOICES, flag
from memplan.errors import MemplanError, UsageError, several
from memplan.job import limits
from memplan.units import Bytes, parse_size


def size(where: str, text: str | None) -> Bytes | None:
    """Read a number of bytes that may be missing.

    Raises:
        UsageError: It is none.
    """
    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        raise UsageError(str(error), where=where) from error


def wrong_word(flag: str, word: str | None, known: Sequence[str]) -> Iterator[str]:
    """Complain of an option that takes some words and was given another one."""
    if word is not None and word not in known:
        yield f"{flag} must be one of {', '.join(known)}, not '{word}'"


def wrong_file(flag: str, file: Path | None) -> Iterator[str]:
    """Complain of a file that cannot be written."""
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        yield f"{flag}: cannot write a file '{file}'"


def wrong_seconds(flag: str, seconds: float) -> Iterator[str]:
    """Complain of a time limit that is none."""
    if not 0 < seconds < math.inf:
        yield f"{flag} must be a number of seconds above 0, not {seconds}"


class Problems:
    """Collects complaints, so that the user sees all of them in one go."""

    def __init__(self) -> None:
        self._whats: list[str] = []
        self._hints: list[str] = []

    def add(self, *whats: str) -> None:
        """Note complaints."""
        self._whats += whats

    def of(self, parse: Callable[..., Any], *arguments: Any) -> Any:
        """What the parser returns; None, and a complaint noted, where it raises a usage error."""
        try:
            return parse(*arguments)
        except MemplanError as error:
            self.add(f"{error.where}: {error.what}" if error.where else error.what)
            self._hints += [error.hint] if error.hint else []
            return None

    def raise_if_any(self) -> None:
        """Complain about everything at once."""
        if self._whats:
            raise several(self._whats, hint="; ".join(dict.fromkeys(self._hints)) or None)


def _quoted(word: object, choices: Sequence[str]) -> str:
    """A wrong word, and the choice that it resembles."""
    nearest = difflib.get_close_matches(str(word).lower(), choices, n=1, cutoff=0.6)
    return f"'{word}'" + (f": did you mean {nearest[0]}?" if nearest else "")


def wrong_values(given: Mapping[str, Any]) -> list[str]:
    """A sentence for each option whose value cannot be."""
    problems = [
        f"{flag(name)} must be one of {', '.join(CHOICES[name])}, not {_quoted(given[name], CHOICES[name])}"
        for name in CHOICES
        if name in given and given[name] not in CHOICES[name]
    ]
    problems += limits.wrong_values(given, flag)
    return [*problems, *(wrong_seconds("--timeout", given["timeout"]) if "timeout" in given else ())]
