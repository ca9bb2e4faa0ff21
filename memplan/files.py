"""Files that are there whole or not at all."""

import contextlib
import errno
import secrets
from pathlib import Path

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
    path = path.resolve()
    try:
        _replace(path, content)
    except OSError as error:
        if error.errno not in _CANNOT_STAND_BESIDE or not path.exists():
            raise
        path.write_bytes(content)


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
