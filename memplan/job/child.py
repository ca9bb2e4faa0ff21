"""The child's side of ``memplan.job.isolate``: take one call from the pipe, run it, send back what comes of it.

Messages are frames: one byte of kind, eight of length, the body. They travel on a private copy of the standard output;
the descriptor itself is turned to the standard error before user code runs, so that nothing that user code prints,
from Python or from C, gets between them.
"""

import contextlib
import os
import pickle
import signal
import sys
import threading
import traceback
from typing import BinaryIO, Literal, NoReturn

Kind = Literal[b"P", b"R", b"E", b"W"]
"""Progress text, pickled result, pickled error with traceback text, where the main thread is."""

LENGTH_BYTES = 8


class Channel:
    """Writes frames for the parent; shared by the main thread and the one that watches the parent."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, kind: Kind, body: bytes) -> None:
        """Send one frame. A parent that is gone ends this process."""
        try:
            with self._lock:
                self._stream.write(kind + len(body).to_bytes(LENGTH_BYTES, "big") + body)
                self._stream.flush()
        except OSError:
            _end_group()


_CHANNEL: list[Channel] = []
"""This process's channel to its parent; empty in a process that ``run_isolated`` did not start."""


def progress(text: str) -> None:
    """Tell the parent's ``progress`` callback what happens now. Does nothing outside of a child process."""
    for channel in _CHANNEL:
        channel.send(b"P", text.encode())


def main(requests: BinaryIO) -> NoReturn:
    """Run the call that waits in ``requests``, send its outcome and end the process without exit hooks."""
    call = pickle.load(requests)  # noqa: S301 - our own parent wrote it.
    channel = _take_over_standard_streams()
    _CHANNEL.append(channel)
    from memplan.job.noise import hush_libraries

    hush_libraries()
    kind, body = _outcome(call)
    for stream in (sys.stdout, sys.stderr):
        # User code may have closed or replaced them.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    channel.send(kind, body)
    # Exit hooks and threads of user code could hang, and nothing is left to clean up.
    os._exit(0)


def _take_over_standard_streams() -> Channel:
    """Move the pipes to private descriptors; user code reads nothing and writes to the standard error."""
    watched, messages = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    channel = Channel(os.fdopen(messages, "wb"))
    threading.Thread(target=_watch_parent, args=(watched, channel), daemon=True).start()
    return channel


def _watch_parent(descriptor: int, channel: Channel) -> None:
    """Answer each byte from the parent with the place where the main thread is; end when the parent does."""
    while os.read(descriptor, 1):
        channel.send(b"W", (_place_of_main_thread() or "").encode())
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
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
