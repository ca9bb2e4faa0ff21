"""The one place where memplan opens a file that somebody named: never a device, never without end."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from memplan.units import format_bytes

SETTINGS = 1 << 20
"""Bytes of a file that people write by hand: TOML, YAML, a list of options. PyYAML needs 15 s for so much."""
DATA = 256 << 20
"""Bytes of a file that programs write: results with timelines, graphs, tables. The largest of memplan's own tests take
20 MB."""
_PIECE = 1 << 20
"""Bytes asked for at once where nobody says how many there are."""


class UnreadableError(ValueError):
    """A file that cannot be read, or is not what it should be; says why."""


class MissingError(UnreadableError):
    """There is no such file."""


class TooLargeError(UnreadableError):
    """The file has more bytes than were allowed."""


def read_bytes(path: Path | str, most: int = DATA) -> bytes:
    """What a file holds. A pipe that the shell made (``<(…)``, ``/dev/stdin``) is read to its end.

    Raises:
        UnreadableError: There is no such file, it is none (a folder, a device, a named pipe, which might never end),
            it is too large, or the system refuses it.
    """
    try:
        # Looked at before it is opened: opening alone rewinds a tape, and waits at a named pipe.
        _refuse_what_is_no_file(Path(path).stat().st_mode, Path(path))
        with _opened(path) as file:
            found = os.fstat(file.fileno())
            _refuse_what_is_no_file(found.st_mode, Path(path))
            if found.st_size > most:
                raise _too_large(most)
            return _all_of(file, found.st_size, most)
    except FileNotFoundError:
        raise MissingError("there is no such file") from None
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from None
    except MemoryError:
        raise UnreadableError("there is not enough memory for it") from None
    except UnreadableError:
        raise
    except ValueError:
        raise UnreadableError("no file can have this name") from None


def read_text(path: Path | str, most: int = DATA) -> str:
    """The same as text, with every kind of line end as it stands.

    Raises:
        UnreadableError: As above, or it is not UTF-8.
    """
    try:
        return read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"it is no text in UTF-8: {error.reason} at byte {error.start}") from None


def is_file(path: Path | str) -> bool:
    """Is there something under this name that ``read_bytes`` may try? False for names that no file can have."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode) or (stat.S_ISFIFO(mode) and not _has_name(Path(path)))


def real(path: Path) -> Path:
    """Where a name leads, as far as it leads anywhere: ``Path.resolve`` raises where links lead to themselves."""
    return Path(os.path.realpath(path))


def _refuse_what_is_no_file(mode: int, path: Path) -> None:
    if stat.S_ISREG(mode) or (stat.S_ISFIFO(mode) and not _has_name(path)):
        return
    if stat.S_ISDIR(mode):
        raise UnreadableError(os.strerror(errno.EISDIR))
    kind = "a named pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
    raise UnreadableError(f"this is {kind}, not a file")


def _has_name(path: Path) -> bool:
    """Does a pipe stand in a folder? Others are found through ``/dev/fd``, and what that leads to is no path."""
    return os.path.exists(os.path.realpath(path))  # noqa: PTH110 - Path.resolve() raises on loops.


def _opened(path: Path | str) -> BinaryIO:
    # Should a pipe have taken the file's place meanwhile, it must not wait for somebody to write.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if hasattr(os, "set_blocking"):
        os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb")


def _all_of(file: BinaryIO, size: int, most: int) -> bytes:
    """Everything, in one piece where the size is known: joined pieces would take twice the memory."""
    pieces, room = [], most + 1
    while room > 0 and (piece := file.read(min(room, max(_PIECE, size + 1)))):
        pieces.append(piece)
        room -= len(piece)
    if room <= 0:
        raise _too_large(most)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(f"it is larger than {format_bytes(most)}")
