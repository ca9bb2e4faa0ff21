"""Emitted files, written."""

from pathlib import Path

from memplan.emit.records import Emitted


def written(emitted: Emitted, folder: Path) -> Path:
    """The files in a folder; the path of the first."""
    for name, content in emitted.files.items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder / next(iter(emitted.files))
