"""What a program does beside computing: files written, processes started, connections made.

Memplan runs a program's Python to see what it allocates, not to have its effects. Files that it writes go to a folder
that is thrown away; deleting, renaming, starting processes (but commands that only tell something) and connecting fail
as on a machine that does not allow them. This keeps accidents from happening; it is no sandbox.
"""

import builtins
import errno
import io
import json
import multiprocessing.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from memplan.files.scratch import scratch_folder
from memplan.job.child import ENDING
from memplan.seam.replace import Replacement, attribute, replaced
from memplan.tracing.host_reads import NOT_SAVED
from memplan.tracing.script import saved_objects
from memplan.tracing.script.commands import Command, command
from memplan.tracing.script.written_files import WRITES, WrittenFiles, absolute, is_below

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
_PAIRS = frozenset({"os.rename", "os.link", "os.symlink"})
"""Events whose first two arguments are paths."""


class _Guard:
    """Refuses; one for the process, since audit hooks stay for ever."""

    def __init__(self) -> None:
        self.scratch: Path | None = None
        self.assume: Callable[[str], None] = lambda _: None
        self.is_installed = False
        self._trusts = False

    @contextmanager
    def trusting(self) -> Iterator[None]:
        """Let what runs in the context delete by names that are relative to an open folder (``shutil.rmtree``)."""
        self._trusts = True
        try:
            yield
        finally:
            self._trusts = False

    def install(self) -> None:
        if not self.is_installed:
            sys.addaudithook(self)
            self.is_installed = True

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if self.scratch is None or self._trusts or ENDING.is_set():
            return
        if event == "subprocess.Popen" and self._may_start(command(*args[:2])):
            return
        if event == "socket.bind" and _asks_for_a_port(args[1]):
            return
        if event in _FORBIDDEN:
            paths = args[: 2 if event in _PAIRS else 1] or (None,)
            if not all(map(self._is_inside, paths)):
                self._refuse(_FORBIDDEN[event], args)
        if event in _NAMES and str(args[0]) not in _HERE:
            self._refuse("connecting", args)
        if event == "sqlite3.connect" and str(args[0]) != ":memory:" and not self._is_inside(args[0]):
            self._refuse("writing files", args)
        if event == "open" and isinstance(args[2], int) and args[2] & WRITES and not self._may_write(args[0]):
            self._refuse("writing files", args)

    def _may_start(self, wanted: Command) -> bool:
        """Does a command only tell something?

        Raises:
            FileNotFoundError: It is not there, as far as the program should know.
        """
        if not wanted.words:
            return False
        is_there = shutil.which(wanted.words[0]) is not None
        if is_there and not wanted.is_of_gpus:
            return wanted.only_tells
        if wanted.in_shell and not is_there:
            # Its exit code says that there is none; another unknown word may be the shell's own (``eval``).
            return wanted.is_of_gpus
        if is_there:
            self.assume(f"the command {wanted.words[0]} is taken as not installed")
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), wanted.words[0])

    def _may_write(self, path: object) -> bool:
        return isinstance(path, int) or str(path).startswith("/dev/") or self._is_inside(path)

    def _is_inside(self, path: object) -> bool:
        if self.scratch is None or not isinstance(path, str | bytes | os.PathLike):
            return False
        return is_below(absolute(path), str(self.scratch))

    def _refuse(self, what: str, args: tuple[Any, ...]) -> None:
        named = f" ({args[0]})" if args and isinstance(args[0], str) and len(args[0]) < 80 else ""
        self.assume(f"{what}{named} was refused to the program")
        raise PermissionError(f"{what}{named} is not allowed while memplan runs the program")


def _asks_for_a_port(address: object) -> bool:
    """Is a free port of this machine wanted, as programs look for one that their ranks may meet at?"""
    return isinstance(address, tuple) and len(address) > 1 and str(address[0]) in _LOCAL and address[1] == 0


_LOCAL = _HERE | {"::"}
"""Names of this machine, or of all of its addresses."""
_GUARD = _Guard()


@contextmanager
def no_side_effects(assume: Callable[[str], None]) -> Iterator[None]:
    """Keep what runs in the context from changing anything outside of a scratch folder.

    Args:
        assume: Told what was redirected or refused.
    """
    _GUARD.install()
    with scratch_folder("memplan-script-") as scratch, _redirected(scratch, assume):
        _GUARD.scratch, _GUARD.assume = scratch, assume
        try:
            yield
        finally:
            _GUARD.scratch = None


@contextmanager
def _redirected(scratch: Path, assume: Callable[[str], None]) -> Iterator[None]:
    """Let functions that write do so in the scratch folder."""
    files = WrittenFiles(scratch, _GUARD.trusting)

    def save(obj: Any, f: Any, *_: Any, **__: Any) -> None:
        """Programs load, rename, link, count and remove what they saved."""
        assume(NOT_SAVED)
        saved_objects.save(obj, f, files.open)

    with (
        mock.patch.object(builtins, "open", files.open),
        mock.patch.object(io, "open", files.open),
        mock.patch.object(tarfile, "bltn_open", files.open),
        mock.patch.dict(_numpy_openers(), {None: files.open}),
        mock.patch.dict(vars(os), {"popen": _popen, "system": _system, **files.functions()}),
        mock.patch.object(subprocess, "check_output", _check_output(subprocess.check_output)),
        mock.patch.object(shutil, "rmtree", files.rmtree),
        mock.patch.object(multiprocessing.util, "spawnv_passfds", _spawn),
        mock.patch.object(tempfile, "tempdir", str(scratch)),
        replaced(
            (
                Replacement("torch.save", save),
                Replacement("torch.load", partial(saved_objects.load, attribute("torch.load"))),
            )
        ),
    ):
        yield


def _numpy_openers() -> dict[str | None, Any]:
    """How NumPy opens text files: it remembers ``open`` when it is imported."""
    opened = sys.modules.get("numpy.lib._datasource")
    openers: dict[str | None, Any] = {} if opened is None else opened._file_openers._file_openers
    return openers


def _spawn(path: Any, *_: Any) -> int:
    """``multiprocessing`` with ``spawn`` or ``forkserver``, which no audit event tells of."""
    sys.audit("subprocess.Popen", os.fsdecode(path))
    raise PermissionError("starting processes is not allowed while memplan runs the program")


def _check_output(real: Callable[..., Any]) -> Callable[..., Any]:
    """``subprocess.check_output``, which ``typeshed_client`` asks for the import path of this very Python."""

    def check_output(command: Any, *args: Any, **options: Any) -> Any:
        if command == [sys.executable, "-c", "import sys, json; print(json.dumps(sys.path))"]:
            return json.dumps(sys.path).encode()
        return real(command, *args, **options)

    return check_output


def _system(command: Any) -> int:
    """``os.system``: a shell that cannot start its command raises nothing."""
    _GUARD.assume(f"starting processes ({os.fsdecode(command)[:80]}) was refused to the program")
    return 127 << 8


def _popen(command: str, *_: Any, **__: Any) -> io.StringIO:
    """``os.popen``: progress bars ask for the size of the terminal."""
    return io.StringIO("24 80\n" if command.startswith("stty size") else "")
