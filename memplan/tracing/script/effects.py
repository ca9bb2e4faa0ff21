"""What a program does beside computing: files written, processes started, connections made.

Memplan runs a program's Python to see what it allocates, not to have its effects. Files that it writes go to a folder
that is thrown away; deleting, renaming, starting processes and connecting fail as on a machine that does not allow
them. This keeps accidents from happening; it is no sandbox.
"""

import builtins
import io
import multiprocessing.util
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

_FORBIDDEN = {
    "os.remove": "deleting files",
    "os.rmdir": "deleting folders",
    "os.rename": "renaming files",
    "os.truncate": "shortening files",
    "os.link": "linking files",
    "os.symlink": "linking files",
    "os.chmod": "changing files",
    "os.chown": "changing files",
    "os.setxattr": "changing files",
    "os.removexattr": "changing files",
    "shutil.rmtree": "deleting folders",
    "os.system": "starting processes",
    "subprocess.Popen": "starting processes",
    "os.exec": "starting processes",
    "os.posix_spawn": "starting processes",
    "os.fork": "starting processes",
    "os.forkpty": "starting processes",
    "os.kill": "sending signals",
    "os.killpg": "sending signals",
    "socket.connect": "connecting",
    "socket.sendto": "connecting",
    "socket.sendmsg": "connecting",
    "socket.bind": "listening",
}
"""Audit event (docs.python.org, "Audit events table") → what it is."""
_NAMES = frozenset({"socket.getaddrinfo", "socket.gethostbyname"})
"""Events that ask the net where a machine is."""
_HERE = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "", "None"})  # noqa: S104 - nothing is bound.
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class _Guard:
    """Refuses; one for the process, since audit hooks stay for ever."""

    def __init__(self) -> None:
        self.scratch: Path | None = None
        self.assume: Callable[[str], None] = lambda _: None
        self.is_installed = False

    def install(self) -> None:
        if not self.is_installed:
            sys.addaudithook(self)
            self.is_installed = True

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if self.scratch is None:
            return
        if event in _FORBIDDEN and not self._is_inside(args[0] if args else None):
            self._refuse(_FORBIDDEN[event], args)
        if event in _NAMES and str(args[0]) not in _HERE:
            self._refuse("connecting", args)
        if event == "sqlite3.connect" and str(args[0]) != ":memory:" and not self._is_inside(args[0]):
            self._refuse("writing files", args)
        if event == "open" and isinstance(args[2], int) and args[2] & _WRITES and not self._may_write(args[0]):
            self._refuse("writing files", args)

    def _may_write(self, path: object) -> bool:
        return isinstance(path, int) or str(path).startswith("/dev/") or self._is_inside(path)

    def _is_inside(self, path: object) -> bool:
        if self.scratch is None or not isinstance(path, str | bytes | os.PathLike):
            return False
        return Path(os.fsdecode(path)).absolute().is_relative_to(self.scratch)

    def _refuse(self, what: str, args: tuple[Any, ...]) -> None:
        named = f" ({args[0]})" if args and isinstance(args[0], str) and len(args[0]) < 80 else ""
        self.assume(f"the program's {what}{named} was refused")
        raise PermissionError(f"{what}{named} is not allowed while memplan runs the program")


_GUARD = _Guard()


@contextmanager
def no_side_effects(assume: Callable[[str], None]) -> Iterator[None]:
    """Keep what runs in the context from changing anything outside of a scratch folder.

    Args:
        assume: Told what was redirected or refused.
    """
    _GUARD.install()
    scratch = Path(tempfile.mkdtemp(prefix="memplan-script-"))
    files = _Files(scratch, assume)
    with (
        mock.patch.object(builtins, "open", files.open),
        mock.patch.object(io, "open", files.open),
        mock.patch.object(tarfile, "bltn_open", files.open),
        mock.patch.dict(_numpy_openers(), {None: files.open}),
        mock.patch.object(os, "mkdir", files.mkdir),
        mock.patch.object(os, "stat", files.stat),
        mock.patch.object(os, "rename", files.renaming(os.rename)),
        mock.patch.object(os, "replace", files.renaming(os.replace)),
        mock.patch.object(os, "remove", files.removing(os.remove)),
        mock.patch.object(os, "unlink", files.removing(os.unlink)),
        mock.patch.object(os, "popen", _popen),
        mock.patch.object(multiprocessing.util, "spawnv_passfds", _spawn),
        mock.patch.object(tempfile, "tempdir", str(scratch)),
    ):
        _GUARD.scratch, _GUARD.assume = scratch, assume
        try:
            yield
        finally:
            _GUARD.scratch = None
            shutil.rmtree(scratch, ignore_errors=True)


class _Files:
    """Stand-ins of functions that write: what is written goes to the scratch folder, under the same name."""

    def __init__(self, scratch: Path, assume: Callable[[str], None]) -> None:
        self._scratch = scratch
        self._assume = assume
        self._open, self._mkdir, self._stat = io.open, os.mkdir, os.stat
        self._written: set[str] = set()
        self._made: set[str] = set()

    def open(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        """``open``; a file that was written before is read back."""
        if isinstance(file, int) or str(file).startswith("/dev/"):
            return self._open(file, mode, *args, **kwargs)
        name = os.path.abspath(os.fsdecode(file))  # noqa: PTH100 - the path need not exist.
        inside = Path(name).is_relative_to(self._scratch)
        if not inside and (set(mode) & set("wax+") or name in self._written):
            file = self._copy_of(name)
            if name not in self._written and set(mode) & set("ra") and Path(name).is_file():
                shutil.copyfile(name, file)  # What is appended to, or changed in place, begins as it is.
            self._written.add(name)
        return self._open(file, mode, *args, **kwargs)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        """``os.mkdir``, of a folder that nothing will be in."""
        if Path(os.fsdecode(path)).absolute().is_relative_to(self._scratch):
            self._mkdir(path, mode, dir_fd=dir_fd)
        else:
            self._made.add(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100 - the path need not exist.

    def stat(self, path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        """``os.stat``, also of what was written or made before: programs ask whether it is there."""
        try:
            return self._stat(path, *args, **kwargs)
        except FileNotFoundError:
            name = "" if isinstance(path, int) else os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - see above.
            if name in self._written:
                return self._stat(self._copy_of(name))
            if name in self._made:
                return self._stat(self._scratch)
            raise

    def renaming(self, real: Callable[..., None]) -> Callable[..., None]:
        """``os.rename`` of what the program wrote itself, or of a checkpoint that was not written at all."""

        def rename(source: Any, target: Any, **options: Any) -> None:
            names = [os.path.abspath(os.fsdecode(path)) for path in (source, target)]  # noqa: PTH100 - see above.
            if self._is_on_disk(names[0]):
                real(source, target, **options)
            elif names[0] in self._written:
                shutil.move(self._copy_of(names[0]), self._copy_of(names[1]))
                self._written = self._written - {names[0]} | {names[1]}

        return rename

    def removing(self, real: Callable[..., None]) -> Callable[..., None]:
        """``os.remove``, likewise."""

        def remove(path: Any, **options: Any) -> None:
            name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - see above.
            if self._is_on_disk(name):
                real(path, **options)
            self._written.discard(name)

        return remove

    def _is_on_disk(self, name: str) -> bool:
        """Is there a file of this name for real, or one in the scratch folder itself?"""
        try:
            self._stat(name, follow_symlinks=False)
        except OSError:
            return False
        return True

    def _copy_of(self, name: str) -> Path:
        return self._scratch / name.lstrip("/").replace("/", "%")


def _numpy_openers() -> dict[str | None, Any]:
    """How NumPy opens text files: it remembers ``open`` when it is imported."""
    opened = sys.modules.get("numpy.lib._datasource")
    openers: dict[str | None, Any] = {} if opened is None else opened._file_openers._file_openers
    return openers


def _spawn(path: Any, *_: Any) -> int:
    """``multiprocessing`` with ``spawn`` or ``forkserver``, which no audit event tells of."""
    sys.audit("subprocess.Popen", os.fsdecode(path))
    raise PermissionError("starting processes is not allowed while memplan runs the program")


def _popen(command: str, *_: Any, **__: Any) -> io.StringIO:
    """``os.popen``: progress bars ask for the size of the terminal."""
    return io.StringIO("24 80\n" if command.startswith("stty size") else "")
