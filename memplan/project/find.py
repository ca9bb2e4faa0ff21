"""Where a project file is, and the table that it holds."""

import os
from pathlib import Path
from typing import Any

from memplan.errors import UsageError
from memplan.files import documents
from memplan.files.read import UnreadableError

OWN, SHARED = "memplan.toml", "pyproject.toml"
"""A file of memplan's own, and one that other tools read too: there its table is ``[tool.memplan]``."""
_INIT = "'memplan init' writes one"


def find_project(start: Path) -> Path:
    """The project file of a folder, as found from the working directory: its own, else the nearest above.

    Raises:
        UsageError: There is none, a folder has two, or a ``pyproject.toml`` on the way cannot be read.
    """
    for folder in (start.absolute(), *start.absolute().parents):
        found = [folder / OWN] if (folder / OWN).is_file() else []
        found += [folder / SHARED] if (folder / SHARED).is_file() and has_section(folder / SHARED) else []
        if len(found) > 1:
            what = f"both {OWN} and [tool.memplan] of {SHARED} name jobs in {folder}"
            raise UsageError(what, hint="keep one of them, or say which: --project FILE")
        if found:
            return from_here(found[0])
    raise UsageError(f"no {OWN} and no {SHARED} with [tool.memplan] in {start.absolute()} or above it", hint=_INIT)


def from_here(path: Path) -> Path:
    """A path as it is found from the working directory."""
    try:
        return Path(os.path.relpath(path))
    except ValueError:  # Another drive than ours.
        return path.absolute()


def gpus_of_project(start: Path) -> tuple[tuple[str, ...], tuple[Path, ...], Path] | None:
    """GPUs that the project of a folder names for all its jobs, folders of their profiles, and its file.

    None where there is no project, or it names none; what is wrong in it ``memplan gate`` tells.
    """
    try:
        file = find_project(start)
        table, _ = read_table(file)
    except UsageError:
        return None
    names, folders = (tuple(map(str, table.get(key) or ())) for key in ("gpus", "profile-dirs"))
    return (names, tuple(file.parent / each for each in folders), file) if names else None


def has_section(file: Path) -> bool:
    """Does a ``pyproject.toml`` say anything of memplan?"""
    return "memplan" in _tools(read_toml(file)[0])


def read_table(file: Path) -> tuple[dict[str, Any], str]:
    """What a project file, whatever its name, says of memplan, and the whole text of the file.

    Raises:
        UsageError: The file cannot be read, or has no such table.
    """
    content, text = read_toml(file)
    if file.name != SHARED:
        return content, text
    section = _tools(content).get("memplan")
    if not isinstance(section, dict):
        raise UsageError(f"{file} has no [tool.memplan]", hint=_INIT)
    return section, text


def read_toml(file: Path) -> tuple[dict[str, Any], str]:
    """What a TOML file holds, and its text.

    Raises:
        UsageError: It cannot be read, or is no TOML; says at which line.
    """
    try:
        return documents.read_toml(file)
    except UnreadableError as error:
        raise UsageError(f"{file} cannot be read: {error}") from error


def _tools(content: dict[str, Any]) -> dict[str, Any]:
    tools = content.get("tool")
    return tools if isinstance(tools, dict) else {}
