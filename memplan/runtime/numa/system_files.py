"""The files of ``/sys`` and ``/proc``, of this machine or a copy, and the lists in them. A missing one is empty."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from memplan.errors import UsageError

MOST_CHARACTERS = 1 << 20
"""Of one file; those of ``/sys`` have 4096."""
MAX_CPU = 8191
"""The most that a kernel is built for (x86: NR_CPUS_RANGE_END)."""


class SystemFiles:
    """Reads below a root, and remembers what it read and what it could not make sense of. For one thread."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.notes: list[str] = []
        self._texts: dict[str, str] = {}

    def text(self, path: str) -> str:
        """A file's text without the last line break; empty where it cannot be read."""
        if path not in self._texts:
            try:
                with (self.root / path).open(encoding="utf-8", errors="replace") as file:
                    self._texts[path] = file.read(MOST_CHARACTERS).rstrip("\n")
            except (OSError, ValueError):
                return ""
        return self._texts[path]

    def names(self, folder: str) -> list[str]:
        """What stands in a folder, sorted; nothing where it cannot be read."""
        try:
            return sorted(entry.name for entry in (self.root / folder).iterdir())
        except OSError:
            return []

    def number(self, path: str, missing: int = 0) -> int:
        """A file's number, decimal or with 0x; ``missing`` where there is none."""
        text = self.text(path).strip()
        try:
            return int(text, 0)
        except ValueError:
            if text:
                self.notes.append(f"/{path} says '{text[:40]}', which is no number")
            return missing

    def list(self, path: str) -> tuple[int, ...]:
        """A file's list of numbers; empty where there is none."""
        try:
            return parse_list(self.text(path))
        except ValueError as error:
            self.notes.append(f"/{path} is no list of numbers: {error}")
            return ()

    def save(self, folder: Path) -> int:
        """Write all that was read into a folder, from where it can be read again; returns how many files.

        Raises:
            UsageError: They cannot be written.
        """
        try:
            for path, text in self._texts.items():
                file = folder / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text + "\n", "utf-8")
        except OSError as error:
            raise UsageError(f"cannot save the topology to '{folder}': {error.strerror}") from error
        return len(self._texts)


def parse_list(text: str) -> tuple[int, ...]:
    """Numbers of a list, ascending; an empty text is an empty list.

    Raises:
        ValueError: It is not a list, or names more than a kernel can have.
    """
    found: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        first, dash, last = part.strip().partition("-")
        if not (first.isascii() and first.isdigit() and (not dash or (last.isascii() and last.isdigit()))):
            raise ValueError(f"'{part}' is neither a number nor a range")
        start, end = int(first[:9]), int((last or first)[:9])
        if not start <= end <= MAX_CPU:
            raise ValueError(f"'{part}' is no range of numbers up to {MAX_CPU}")
        found.update(range(start, end + 1))
    return tuple(sorted(found))


def format_list(numbers: Iterable[int]) -> str:
    """The shortest list of these numbers."""
    runs = groupby(enumerate(sorted(set(numbers))), key=lambda pair: pair[1] - pair[0])
    spans = [[number for _, number in run] for _, run in runs]
    return ",".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)


def mask(numbers: Iterable[int]) -> int:
    """One bit for each number."""
    return sum(1 << number for number in set(numbers))
