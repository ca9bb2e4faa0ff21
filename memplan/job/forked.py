"""Run something in a copy of this process, which may hang or die without harm."""

import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial

PATIENCE = 4
"""Seconds of waiting for each second of processor time: on a busy machine that is not much."""


def forked(body: Callable[[Callable[[str], None]], None], cpu_seconds: int) -> tuple[str, ...]:
    """Return the lines that ``body`` writes in a forked child, until it ends, fails or has taken too long.

    Where forks are not safe there are none.

    Args:
        body: Runs in the child, whose only thread is this one; it is given what writes a line.
        cpu_seconds: Processor time that it has.
    """
    if sys.platform != "linux":
        return ()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 on warns of other threads' locks; whoever waits for one here is ended.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        os.close(reader)
        _run(body, writer, cpu_seconds)
    os.close(writer)
    try:
        return _lines(reader, time.monotonic() + PATIENCE * cpu_seconds)
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _run(body: Callable[[Callable[[str], None]], None], writer: int, cpu_seconds: int) -> None:
    """Never returns: nothing of the parent's clean-up may run here."""
    # Not every platform has it.
    import resource

    try:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        body(partial(_write, writer))
    finally:
        os._exit(0)


def _write(writer: int, line: str) -> None:
    rest = memoryview(f"{line}\n".encode())
    while rest:
        rest = rest[os.write(writer, rest) :]


def _lines(reader: int, deadline: float) -> tuple[str, ...]:
    """Whole lines that come until the deadline."""
    parts: list[bytes] = []
    while (left := deadline - time.monotonic()) > 0 and select.select([reader], [], [], left)[0]:
        part = os.read(reader, 1 << 16)
        if not part:
            break
        parts.append(part)
    return tuple(b"".join(parts).decode().split("\n")[:-1])
