"""The child's side of ``memplan.job.isolate``: take one call from the pipe, run it, send back what comes of it.

Messages are frames: the call's token, one byte of kind, eight of length, the body. They travel on a private copy of the
standard output; the descriptor itself is turned to the standard error before user code runs, so that nothing that user
code prints, from Python or from C, gets between them. What it writes to descriptors that are not its own has no token.
"""

import contextlib
import errno
import os
import pickle
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING, BinaryIO, Literal, NoReturn

from memplan.files import scratch
from memplan.files.output import flush_output

if TYPE_CHECKING:
    from psutil import Process

Kind = Literal[b"P", b"R", b"E", b"W"]
"""Progress text, pickled result, pickled error with traceback text, where the main thread is."""

LENGTH_BYTES = 8
CLOSED = 97
"""Exit code of a child whose channel user code has closed."""
_OUT_OF_REACH = 500
"""Least number of the private descriptors: code that guesses numbers guesses small ones."""
_ADOPT = 36
"""``PR_SET_CHILD_SUBREAPER`` (linux/prctl.h): orphans below this process become its children."""


class Channel:
    """Writes frames for the parent; shared by the main thread and the one that watches the parent."""

    def __init__(self, stream: BinaryIO, token: bytes) -> None:
        self._stream = stream
        self._token = token
        self._lock = threading.Lock()

    def send(self, kind: Kind, body: bytes) -> None:
        """Send one frame. A parent that is gone ends this process, and so does a channel that user code has closed."""
        try:
            with self._lock:
                self._stream.write(self._token + kind + len(body).to_bytes(LENGTH_BYTES, "big") + body)
                self._stream.flush()
        except OSError as error:
            if error.errno == errno.EBADF:
                _end_descendants()
                os._exit(CLOSED)
            _end_group()


ENDING = threading.Event()
"""Set once this process ends: what it does from then on, such as sending signals, is not the program's."""

_CHANNEL: list[Channel] = []
"""This process's channel to its parent; empty in a process that ``run_isolated`` did not start."""


def progress(text: str) -> None:
    """Tell the parent's ``progress`` callback what happens now. Does nothing outside of a child process."""
    for channel in _CHANNEL:
        channel.send(b"P", text.encode())


def main(requests: BinaryIO) -> NoReturn:
    """Run the call that waits in ``requests``, send its outcome and end the process without exit hooks."""
    token, base, call = pickle.load(requests)  # noqa: S301 - our own parent wrote it.
    scratch.lies_below(base)
    _adopt_orphans()
    channel = _take_over_standard_streams(token)
    _CHANNEL.append(channel)
    from memplan.job.imports import compile_user_code_anew
    from memplan.job.noise import hush_libraries

    hush_libraries()
    compile_user_code_anew()
    kind, body = _outcome(call)
    flush_output()
    channel.send(kind, body)
    _end_descendants()
    # Exit hooks and threads of user code could hang, and nothing is left to clean up.
    os._exit(0)


def _take_over_standard_streams(token: bytes) -> Channel:
    """Move the pipes to private descriptors; user code reads nothing and writes to the standard error."""
    watched, messages = _private(0), _private(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    channel = Channel(os.fdopen(messages, "wb"), token)
    threading.Thread(target=_watch_parent, args=(watched, channel), daemon=True).start()
    return channel


def _private(descriptor: int) -> int:
    try:
        import fcntl

        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_REACH)
    except (ImportError, OSError):  # Windows; or so many are not allowed.
        return os.dup(descriptor)


def _adopt_orphans() -> None:
    """Let processes whose parent ends below this one stay below it, wherever there is such a thing."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(_ADOPT, 1, 0, 0, 0)


def _end_descendants() -> None:
    """End what user code has started and left, in sessions of its own, too."""
    ENDING.set()
    # Whatever goes wrong here, this process ends.
    with contextlib.suppress(Exception):
        end_all(descendants(os.getpid()))


def descendants(pid: int) -> "list[Process]":
    """All processes below one; none where it is gone."""
    import psutil

    try:
        found: list[Process] = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return found


def end_all(processes: "list[Process]") -> None:
    """Kill them, as far as they are still there."""
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _watch_parent(descriptor: int, channel: Channel) -> None:
    """Answer each byte from the parent with the place where the main thread is; end when the parent does."""
    try:
        while os.read(descriptor, 1):
            channel.send(b"W", (_place_of_main_thread() or "").encode())
    except OSError:  # User code has closed it: then nobody watches.
        return
    _end_group()


def _place_of_main_thread() -> str | None:
    from memplan.job.usercode import innermost

    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - documented, in spite of its name.
    return innermost([(each.f_code.co_filename, line) for each, line in traceback.walk_stack(frame)][::-1])


def _outcome(call: bytes) -> tuple[Kind, bytes]:
    try:
        function, args = pickle.loads(call)  # noqa: S301 - our own parent wrote it.
        return b"R", pickle.dumps(function(*args), protocol=pickle.HIGHEST_PROTOCOL)
    except BaseException as error:  # noqa: BLE001 - whatever user code raises has to reach the parent.
        from memplan.job.usercode import told

        return b"E", pickle.dumps((told(error), "".join(traceback.format_exception(error))))


def _end_group() -> NoReturn:
    """End this process and those it started: nobody waits for them any more."""
    try:
        _end_descendants()
        if hasattr(os, "killpg"):
            os.killpg(0, signal.SIGKILL)
    finally:
        os._exit(1)
