"""``python -m memplan``, and what the script ``memplan`` calls: the command line, which Ctrl-C ends at every moment.

An interrupt is an exception that may come out of any line, and what it comes out of may swallow it: imports, callbacks
of weak references, libraries that start processes. So nothing is imported before the signal is taken care of, and who
does not end in time is ended.
"""

import contextlib
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from memplan.errors import ExitCode

_GRACE = 5.0
"""Seconds in which the command may clean up; ending a worker that holds a large trace takes one or two."""


def run() -> int:
    """Run the command line of this process.

    Returns:
        The exit code.
    """
    # Whoever started it may have decided that signals are not for it (``nohup``, a shell's background job).
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_ours:
        from memplan.cli.app import main

        return main()
    signal.signal(signal.SIGINT, _leave)
    from memplan.cli.app import main

    signal.signal(signal.SIGINT, _interrupt)
    try:
        return main()
    finally:
        # From here on the interpreter ends; it has nothing more to say when it is interrupted.
        signal.signal(signal.SIGINT, _leave_silently)
        if hasattr(signal, "SIGALRM"):
            signal.signal(signal.SIGALRM, _leave_silently)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    # Not a thread that waits: starting one here would wait for a lock that the interrupted line may hold.
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, _leave)
        signal.setitimer(signal.ITIMER_REAL, _GRACE)
    signal.signal(signal.SIGINT, _leave)
    if _is_importing(frame):
        # What is half imported stays so, and whoever imports it next fails otherwise.
        _leave(number, frame)
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(2, b"error: interrupted\n")
    _leave_silently(number, frame)


def _leave_silently(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    if "subprocess" in sys.modules or "multiprocessing" in sys.modules:
        _end_children()
    os._exit(ExitCode.INTERRUPTED)


def _end_children() -> None:
    # Whatever goes wrong here, this process ends.
    with contextlib.suppress(Exception):
        import psutil

        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()


if __name__ == "__main__":
    sys.exit(run())
