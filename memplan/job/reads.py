"""What a process reads of the user's while it runs: files, and variables of its environment. For the child process.

Files of installed packages, of the standard library and of memplan are left out: their versions say what they hold. A
file that the process writes itself is none that it depends on. What is only looked for (``Path.exists``) or read by
compiled code is not seen.
"""

import contextlib
import hashlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from memplan.job.usercode import is_user_file

_NOT_FILES = ("/proc/", "/sys/", "/dev/")
_WRITING = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """What decided the outcome of a process beside its arguments and what is installed."""

    files: Mapping[str, str]
    """Absolute path → ``file_digest``."""
    environment: Mapping[str, str]
    """Variable that the user's code asked for → ``variable_digest``: values may be secret."""


def file_digest(path: str) -> str:
    """What a file holds, as SHA-256 in hex; empty where there is no file."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - paths of the record are texts.
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def variable_digest(name: str) -> str:
    """What a variable of the environment holds, as SHA-256 in hex; empty where it is not set."""
    value = os.environ.get(name)
    return "" if value is None else hashlib.sha256(os.fsencode(value)).hexdigest()


def record_reads(*, apart_from: Path | None = None) -> Callable[[], Reads | None]:
    """Begin to record; for a process that ends with its answer, since Python never forgets an audit hook.

    Args:
        apart_from: A folder that does not count: memplan's own cache.

    Returns:
        A function that gives what has been read so far; None where a file has changed since the beginning, so that
        nobody knows which of its contents was read.
    """
    return _Recorder(apart_from).reads


class _Recorder:
    def __init__(self, apart_from: Path | None) -> None:
        self._apart_from = None if apart_from is None else _absolute(str(apart_from)) + os.sep
        self._began = time.time_ns()
        self._opened: dict[str, None] = {}
        self._written: set[str] = set()
        self._imported: dict[str, None] = {}
        self._asked: dict[str, str] = {}
        """Variables of the environment; user code may change one after it was read."""
        self._watch_environment()
        sys.addaudithook(self._audit)

    def reads(self) -> Reads | None:
        # The hook sees the files that are opened for their digests, too.
        paths = [path for path in [*self._opened, *self._missing_modules()] if path not in self._written]
        paths = [path for path in paths if _is_theirs(path) and not Path(path).is_dir()]
        if self._apart_from is not None:
            paths = [path for path in paths if not path.startswith(self._apart_from)]
        if any(_changed_since(path, self._began) for path in paths):
            return None
        return Reads(files={path: file_digest(path) for path in paths}, environment=dict(self._asked))

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            self._note_open(*args)
        elif event == "import":
            self._imported[args[0]] = None
            if isinstance(args[1], str):  # a compiled module
                self._opened[args[1]] = None

    def _note_open(self, path: object, _mode: str | None, flags: int) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a descriptor: whoever opened it has been seen
        name = _absolute(os.fsdecode(path))
        if flags & _WRITING:
            self._written.add(name)
        else:
            self._opened[name] = None

    def _missing_modules(self) -> list[str]:
        """Where modules of the user's would lie that were looked for in vain: ``try: import settings``."""
        folders = [_absolute(folder) for folder in sys.path]
        folders = [folder for folder in folders if is_user_file(f"{folder}/x.py") and Path(folder).is_dir()]
        names = sorted({name.partition(".")[0] for name in self._imported} - sys.modules.keys())
        absent = [name for name in names if _is_absent(name)] if folders else []
        endings = (".py", "/__init__.py")
        return [f"{folder}/{name}{ending}" for folder in folders for name in absent for ending in endings]

    def _watch_environment(self) -> None:
        kind: Any = type(os.environ)
        read = kind.__getitem__

        def noting(environment: Any, name: str) -> str:
            if name not in self._asked and _asked_by_user():
                self._asked[name] = ""  # Working out the digest asks once more.
                self._asked[name] = variable_digest(name)
            value: str = read(environment, name)
            return value

        kind.__getitem__ = noting


def _is_absent(name: str) -> bool:
    # Import hooks of user code may raise whatever they like.
    with contextlib.suppress(Exception):
        return importlib.util.find_spec(name) is None
    return True


def _asked_by_user() -> bool:
    """Was the variable asked for by code of the user's? Libraries read them all, counters of the shell included."""
    frame = sys._getframe(2)  # noqa: SLF001 - documented, in spite of its name.
    while frame.f_back is not None and frame.f_code.co_filename.startswith(("<frozen", os.__file__)):
        frame = frame.f_back
    return _is_user_file(frame.f_code.co_filename)


_is_user_file = cache(is_user_file)


def _is_theirs(path: str) -> bool:
    return _is_user_file(path) and not path.startswith(_NOT_FILES)


def _absolute(path: str) -> str:
    """A path from the root on; a link in it stays, for it may come to lead elsewhere."""
    return os.path.abspath(path)  # noqa: PTH100 - pathlib's would keep the dots.


def _changed_since(path: str, began: int) -> bool:
    try:
        return Path(path).stat().st_mtime_ns >= began
    except OSError:
        return False
