"""Files that are there whole or not at all, and changed by one process at a time."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from memplan.files.read import real

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows.
    fcntl = None

_CANNOT_STAND_BESIDE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV})
"""A folder that takes no new file, or a file that cannot be replaced: one that is mounted into a container."""


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside its place and move it there, so that an interruption leaves what was there before.

    A file that is replaced keeps its permissions; a link keeps pointing to it. What is no plain file (``/dev/stdout``,
    a pipe), and what cannot be replaced, is written in place.

    Raises:
        OSError: It cannot be written.
    """
    # Before links are followed: where standard output is a pipe, what ``/dev/stdout`` leads to has no name.
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    path = real(path)
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    try:
        _replace(path, content)
    except OSError as error:
        if error.errno not in _CANNOT_STAND_BESIDE or not path.exists():
            raise
        path.write_bytes(content)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold off others who want to change the same file: what is read inside is still so when it is written.

    The folder is locked, not the file, which is another one after each ``write_whole``; so no lock file stays behind.
    It ends with the process at the latest. Systems without such locks go on without one.

    Raises:
        OSError: The folder cannot be opened.
    """
    if fcntl is None:
        yield
        return
    folder = os.open(real(path).parent, os.O_RDONLY)
    try:
        # Some network file systems have no locks.
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _replace(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.tmp")
    try:
        # Not ``tempfile``: its files are readable by nobody else.
        with beside.open("xb") as file:
            file.write(content)
        if path.exists():
            beside.chmod(path.stat().st_mode)
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
