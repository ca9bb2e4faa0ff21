"""The files of ``/sys`` and ``/proc``, of this machine or of another one's copy. A missing file is an empty one."""

from pathlib import Path

from memplan.errors import UsageError
from memplan.runtime.numa.cpulist import parse_list

MOST_CHARACTERS = 1 << 20
"""Of one file; those of ``/sys`` have 4096."""


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
