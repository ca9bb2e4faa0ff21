"""One configuration file while it is read: values with their places, and what has to be told about it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Read = Callable[[object], Any]
"""Checks and converts a value, or raises ``ValueError``."""
_BY_THE_USER = "auto"
"""What DeepSpeed's and axolotl's files say where somebody else decides."""


@dataclass(slots=True, kw_only=True)
class FileSource:
    """What a file has said so far."""

    path: Path
    """The file."""
    content: Mapping[str, Any]
    """What it holds."""
    values: dict[str, Any] = field(default_factory=dict)
    """Field of ``JobSpec`` → value."""
    provenance: dict[str, str] = field(default_factory=dict)
    """Field → ``ds_config.json:zero_optimization.stage``."""
    notes: list[str] = field(default_factory=list)
    """What was understood otherwise than it is written, or not at all."""
    problems: list[str] = field(default_factory=list)
    """What cannot be."""
    lacks: dict[str, str] = field(default_factory=dict)
    """Field → why it has to be typed."""

    def get(self, place: str, read: Read | None = None) -> Any:
        """What stands at a place such as ``zero_optimization.stage``; None where nothing does, or ``auto``.

        What ``read`` finds wrong becomes a problem.
        """
        found: Any = self.content
        for key in place.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        if found is None or found == _BY_THE_USER:
            return None
        try:
            return found if read is None else read(found)
        except ValueError as error:
            self.problems.append(f"{self.path.name}: {place}: {error}")
            return None

    def say(self, name: str, value: Any, place: str) -> None:
        """A field has this value, for what stands at this place."""
        self.values[name] = value
        self.provenance[name] = f"{self.path.name}:{place}"

    def take(self, name: str, place: str, read: Read, default: Any = None) -> Any:
        """Let a field have what stands at a place, else the framework's own default; None says nothing."""
        value = self.get(place, read)
        if value is not None:
            self.say(name, value, place)
        elif default is not None:
            self.say(name, default, f"{place}(default)")
        return self.values.get(name)

    def note(self, text: str) -> None:
        """Something has to be told about the file."""
        self.notes.append(f"{self.path.name}: {text}")

    def note_unread(self, places: tuple[str, ...]) -> None:
        """Tell of settings that change memory and that no option of memplan stands for, where they are on."""
        for place in places:
            value = self.get(place)
            # Degrees of 1 are off, switches that are true are on; to Python both are equal.
            if value is True or value not in (None, False, 0, 1, {}, [], "none", "no", "NO"):
                self.note(f"{place} changes memory and is not read")

    def lack(self, name: str, what: str) -> None:
        """A field has to be typed."""
        self.lacks[name] = f"{self.path.name} {what}"

    def include(self, other: "FileSource") -> None:
        """Take over what a file that this one names says."""
        self.values |= other.values
        self.provenance |= other.provenance
        self.notes += other.notes
        self.problems += other.problems
        self.lacks |= other.lacks
