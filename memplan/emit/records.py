"""What an emitter gives: files, and what they leave to the reader."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """A setup in the words of one framework."""

    files: Mapping[str, str]
    """Name → content; the file that is handed to the framework comes first."""
    notes: tuple[str, ...] = ()
    """What the files do not say and somebody has to do, and which peak holds without, one sentence each."""
