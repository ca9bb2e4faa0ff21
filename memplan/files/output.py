"""The process's own output, turned off for a while."""

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_output(*streams: int) -> Iterator[None]:
    """Let nothing be written to a standard stream, from Python, from C or by other processes.

    Args:
        streams: Descriptors: 1, 2. One that is closed stays so.
    """
    flush_output()
    nothing, kept = os.open(os.devnull, os.O_WRONLY), dict[int, int]()
    for stream in streams:
        with contextlib.suppress(OSError):
            kept[stream] = os.dup(stream)
            os.dup2(nothing, stream)
    try:
        yield
    finally:
        flush_output()
        for stream, former in kept.items():
            os.dup2(former, stream)
            os.close(former)
        os.close(nothing)


def flush_output() -> None:
    """Let what Python has printed be written now."""
    for stream in (sys.stdout, sys.stderr):
        # User code may have closed or replaced them.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
