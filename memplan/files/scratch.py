"""Scratch folders that go even where the process that wrote into them is killed: its parent removes what is left."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_BASES: list[Path] = []
"""Where scratch folders lie, the last one counts; where there is none, among all other temporary files."""


def lies_below(base: Path) -> None:
    """Let this process have its scratch folders below one that another process removes."""
    _BASES.append(base)


@contextmanager
def scratch_folder(prefix: str = "memplan-") -> Iterator[Path]:
    """Make a folder for the context, in which further ones lie below it."""
    base = _BASES[-1] if _BASES else None
    # Not made anew: a program's own scratch folder is there, and nothing beside it may be made.
    if base is not None and not base.is_dir():
        base.mkdir(mode=0o700)
    with TemporaryDirectory(prefix=prefix, dir=base, ignore_cleanup_errors=True) as folder:
        _BASES.append(Path(folder))
        try:
            yield _BASES[-1]
        finally:
            _BASES.pop()


def new_base(name: str) -> Path:
    """Return where a child process is to have its scratch folders; it does not exist yet."""
    return Path(tempfile.gettempdir()) / f"memplan-{name}"


def remove(base: Path) -> None:
    """Remove the scratch folders of a process that has ended."""
    shutil.rmtree(base, ignore_errors=True)
