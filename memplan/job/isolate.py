"""Run a function in a fresh process, so that user code can neither hang, exit nor print memplan to death.

parent                                   child (own process group)
call, pickled      ── stdin  ──►         reads it, then reads nothing more
"?" on timeout     ── stdin  ──►         answers with the user's line it is at
end of file        ── stdin  ──►         the parent is gone: ends itself
frames             ◄── stdout ──         progress, result or error (memplan.job.child)
our stderr         ◄── stderr ──         whatever user code prints
"""

import contextlib
import os
import pickle
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, TypeVar, TypeVarTuple

from memplan.errors import EstimateError, MemplanError
from memplan.files import scratch
from memplan.job.child import CLOSED, LENGTH_BYTES, descendants, end_all

if TYPE_CHECKING:
    from psutil import Process

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_BOOTSTRAP = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from memplan.job.child import main; main(sys.stdin.buffer)"
)
"""The child takes the parent's import path, as multiprocessing's spawn does: what we can import, it can."""

_ANSWER_SECONDS = 1.0
"""How long a child that is out of time may take to say where it is; it cannot answer from inside a C function."""

_TOKEN_BYTES = 16
_NOT_THEIRS = "a file descriptor that is memplan's"
_LOOK_FOR_DESCRIPTORS = "look for os.write(), os.close() or os.closerange() with numbers of files that it did not open"
_Frame = tuple[bytes, bytes]


_RUNNING: set["subprocess.Popen[bytes]"] = set()
"""Children whose answer is waited for, by any thread."""


class ChildTraceback(Exception):  # noqa: N818 - a carrier of text, never raised by itself.
    """The child's traceback, as the ``__cause__`` of the error that came out of it."""


def run_isolated(
    function: Callable[[*Ts], T],
    *args: *Ts,
    timeout: float,
    progress: Callable[[str], None] | None = None,
    ask: bool = True,
) -> T:
    """Run ``function(*args)`` in a fresh Python process.

    Args:
        function: A function at module level: it travels by name.
        args: Its arguments; they and the result are pickled.
        timeout: Wall-clock seconds before the process and all it started are killed.
        progress: Called here with each text that the function passes to ``memplan.job.child.progress``.
        ask: Ask a process that is out of time at which line it is, which takes a second? A solver is at no line.

    Returns:
        What the function returns.

    Raises:
        EstimateError: User code raised, exited, was killed or took too long (exit 3).
        MemplanError: As the function raised it; or an internal error (exit 2), with the child's traceback as its cause.
    """
    token = secrets.token_bytes(_TOKEN_BYTES)
    base = scratch.new_base(secrets.token_hex(8))
    call = pickle.dumps(sys.path) + pickle.dumps((token, base, pickle.dumps((function, args))))
    process = _start()
    _RUNNING.add(process)
    try:
        result: T = pickle.loads(_Conversation(process, token, timeout, progress, ask=ask).result(call))  # noqa: S301 - our own child wrote it.
    finally:
        # Also on Ctrl-C: the child has its own process group and does not get the terminal's signal.
        _RUNNING.discard(process)
        _end(process)
        scratch.remove(base)
    return result


def _start() -> subprocess.Popen[bytes]:
    """Start a child that waits for its call."""
    return subprocess.Popen(  # noqa: S603 - our own interpreter.
        # -P: a pickle.py in the current folder must not be taken for Python's before the import path is set.
        [sys.executable, "-P", "-c", _BOOTSTRAP],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def end_running() -> None:
    """Kill every child that other threads wait for: their calls then end with an ``EstimateError``."""
    for process in tuple(_RUNNING):
        if process.returncode is None:  # Else its number may be another's by now.
            _kill(process)


class _Conversation:
    """One call and its answers, read by a thread so that waiting for them can time out on every system."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        token: bytes,
        timeout: float,
        progress: Callable[[str], None] | None,
        *,
        ask: bool,
    ) -> None:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both are pipes.
        self._process, self._requests = process, process.stdin
        self._timeout, self._deadline = timeout, time.monotonic() + timeout
        self._progress, self._answer_seconds = progress, _ANSWER_SECONDS if ask else 0.0
        self._last_seen = ""
        self._frames: queue.SimpleQueue[_Frame | None] = queue.SimpleQueue()
        threading.Thread(target=_read_frames, args=(process.stdout, token, self._frames), daemon=True).start()

    def result(self, call: bytes) -> bytes:
        """Send the call and wait for the pickled result."""
        self._request(call)
        while True:
            try:
                frame = self._frames.get(timeout=max(0.0, self._deadline - time.monotonic()))
            except queue.Empty:
                raise self._out_of_time() from None
            match frame:
                case None:
                    raise _died(self._process.wait(), self._last_seen)
                case (b"P", body):
                    self._last_seen = body.decode()
                    if self._progress is not None:
                        self._progress(self._last_seen)
                case (b"R", body):
                    return body
                case (b"X", _):
                    raise EstimateError(f"the user's code wrote to {_NOT_THEIRS}", hint=_LOOK_FOR_DESCRIPTORS)
                case (_, body):
                    error, trace = pickle.loads(body)  # noqa: S301 - our own child wrote it.
                    raise error from ChildTraceback(trace)

    def _request(self, data: bytes) -> None:
        # A child that died early has closed the pipe; the end of its frames says so better.
        with contextlib.suppress(BrokenPipeError):
            self._requests.write(data)
            self._requests.flush()

    def _out_of_time(self) -> MemplanError:
        self._request(b"?")
        where = None
        with contextlib.suppress(queue.Empty):
            while (frame := self._frames.get(timeout=self._answer_seconds)) is not None:
                if frame[0] == b"W":
                    where = frame[1].decode() or None
                    break
        what = f"the model did not come to an end within {self._timeout:g} seconds{_during(self._last_seen)}"
        return EstimateError(what, where=where, hint="look for an endless loop or a download, or allow more --timeout")


def _read_frames(stream: BinaryIO, token: bytes, frames: "queue.SimpleQueue[_Frame | None]") -> None:
    """Put each frame into the queue, ``X`` where something else comes, and None at the end of the stream."""
    # ValueError: the conversation is over and its pipe closed while this thread was still reading.
    with contextlib.suppress(ValueError):
        while len(header := stream.read(len(token) + 1 + LENGTH_BYTES)) == len(token) + 1 + LENGTH_BYTES:
            kind, length = header[len(token) : -LENGTH_BYTES], int.from_bytes(header[-LENGTH_BYTES:], "big")
            if not header.startswith(token):
                frames.put((b"X", b""))
                break
            body = stream.read(length)
            if len(body) < length:
                break
            frames.put((kind, body))
    frames.put(None)


def _died(return_code: int, last_seen: str) -> MemplanError:
    """The error for a child that ended without an answer."""
    if return_code == CLOSED:
        return EstimateError(f"the user's code closed {_NOT_THEIRS}", hint=_LOOK_FOR_DESCRIPTORS)
    if return_code >= 0:
        what = f"the user's code ended the process with exit code {return_code}{_during(last_seen)}"
        return EstimateError(what, hint="look for os._exit() or a library that exits by itself")
    name = signal.Signals(-return_code).name
    what = f"the process was killed by {name}{_during(last_seen)}"
    if name == "SIGKILL":
        hint = "probably out of memory: build big tensors inside model() and batch(), not when the file is imported"
        return EstimateError(what, hint=hint)
    return EstimateError(what, hint="a compiled extension crashed: try to import and build the model without memplan")


def _during(last_seen: str) -> str:
    return f" (last seen: {last_seen})" if last_seen else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the child with everything it started, and close our ends of its pipes."""
    _kill(process)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    below: list[Process] = []
    with contextlib.suppress(Exception):  # Whatever the system refuses to tell, the child itself is ended.
        below = descendants(process.pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        # PermissionError: macOS, where the group holds nothing but a finished process.
        os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
    end_all(below)
