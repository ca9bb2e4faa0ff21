"""Which files are looked through."""

import fnmatch
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from memplan.errors import UsageError, several
from memplan.files.read import real

SUFFIXES = (".py", ".ipynb")
SKIPPED = frozenset({
    ".git", ".hg", ".svn", ".venv", "venv", "env", "node_modules", "site-packages", "__pycache__", "__pypackages__",
    ".tox",
    ".nox", ".eggs", "build", "dist", ".ipynb_checkpoints", ".mypy_cache", ".ruff_cache", ".pytest_cache",
})  # fmt: skip
"""Folders that hold no code of one's own; what is named on the command line is looked through all the same."""
MOST_FILES = 50_000
"""More are a whole disk rather than somebody's code: PyTorch itself has 3,500."""


def files_of(paths: Sequence[Path], exclude: Sequence[str] = ()) -> list[tuple[Path, str]]:
    """Python files and notebooks, each once, by name.

    Args:
        paths: Files and folders; a file is taken whatever its name.
        exclude: Patterns (``tests/*``, ``*_pb2.py``, ``legacy``) of paths below what is named, or of a folder's or
            file's own name.

    Returns:
        Where each is, and what reports call it.

    Raises:
        UsageError: A path does not exist (tells all that do not), or they hold more than ``MOST_FILES``.
    """
    missing = [f"there is no file or folder '{path}'" for path in paths if not path.exists()]
    if missing:
        raise several(missing)
    found: dict[Path, str] = {}
    for path in paths:
        for each in [path] if path.is_file() else _below(path, exclude):
            found.setdefault(real(each), each.as_posix())
            if len(found) > MOST_FILES:
                raise UsageError(
                    f"there are more than {MOST_FILES:,} Python files below '{path}'",
                    hint="name the folder of your own code, or leave out others by --exclude",
                )
    return sorted(((path, name) for path, name in found.items()), key=lambda each: each[1])


def _below(folder: Path, exclude: Sequence[str]) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(
            each for each in folders if each not in SKIPPED and not _excluded(here / each, folder, exclude)
        )
        for name in sorted(files):
            path = here / name
            if path.suffix in SUFFIXES and not _excluded(path, folder, exclude) and path.is_file():
                yield path


def _excluded(path: Path, root: Path, patterns: Sequence[str]) -> bool:
    relative = path.relative_to(root).as_posix()
    return any(
        fnmatch.fnmatch(relative, pattern.rstrip("/")) or fnmatch.fnmatch(path.name, pattern.rstrip("/"))
        for pattern in patterns
    )


def wanted_rules(known: Sequence[str], select: Sequence[str], ignore: Sequence[str]) -> tuple[str, ...]:
    """Codes that are looked for: those selected (none: all) without those ignored, by code or beginning (``MA0``).

    Raises:
        UsageError: One matches no rule, or nothing is left.
    """
    whats = [
        f"{option} {each}: no rule of the audit begins so"
        for option, asked in (("--select", select), ("--ignore", ignore))
        for each in asked
        if not each or not any(code.startswith(each.upper()) for code in known)
    ]
    if whats:
        raise several(whats, hint="'memplan explain' lists the rules")
    wanted = tuple(
        code for code in known
        if (not select or code.startswith(_upper(select))) and not (ignore and code.startswith(_upper(ignore)))
    )  # fmt: skip
    if not wanted:
        raise UsageError("--select and --ignore leave no rule to look for")
    return wanted


def _upper(codes: Sequence[str]) -> tuple[str, ...]:
    return tuple(each.upper() for each in codes)
