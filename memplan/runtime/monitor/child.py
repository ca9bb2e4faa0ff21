"""The command as a child process: what it gets put in front of, and signals that are for it."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from memplan.errors import UsageError
from memplan.runtime.monitor import wire
from memplan.runtime.monitor.judge import DEFAULTS
from memplan.runtime.monitor.records import RunPlan, Thresholds

_INSIDE = Path(__file__).with_name("inside")
_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
"""Signals that schedulers send to the process that they know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be watched, and how."""

    command: tuple[str, ...]
    """The command and its arguments."""
    plan: RunPlan | None = None
    """What was predicted for each device."""
    thresholds: Thresholds = DEFAULTS
    """Where levels begin."""
    interval: float = 1.0
    """Seconds between checks."""
    log: Path | None = None
    """File to append lines of JSON to."""
    inside: bool = True
    """Read from within its Python processes, too."""
    count_cpu: bool = False
    """Have them count CPU tensors."""
    snapshots: Path = Path()
    """Folder for the allocator's state when a CUDA allocation fails."""


@contextmanager
def started(wanted: Wanted, address: str) -> Iterator["subprocess.Popen[Any]"]:
    """The running command; signals to this process are passed on to it until it has ended."""
    try:
        child = subprocess.Popen(wanted.command, env=_environment(wanted, address))  # noqa: S603 - what the user typed.
    except (OSError, ValueError) as error:
        what = f"cannot run '{wanted.command[0]}': {getattr(error, 'strerror', None) or error}"
        raise UsageError(what, hint="memplan monitor [OPTIONS] -- python train.py") from error

    def pass_on(number: int, frame: FrameType | None) -> None:
        del frame
        # A terminal sends Ctrl-C to the command, too; a second one would break off its own cleaning up.
        if number != signal.SIGINT or not _in_foreground():
            child.send_signal(number)

    numbers = [signal.SIGINT, *(getattr(signal, name) for name in _PASSED_ON if hasattr(signal, name))]
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        yield child
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _environment(wanted: Wanted, address: str) -> dict[str, str]:
    if not address:
        return dict(os.environ)
    path = os.pathsep.join(filter(None, (str(_INSIDE), os.environ.get("PYTHONPATH"))))
    return {
        **os.environ,
        "PYTHONPATH": path,
        wire.ADDRESS: address,
        wire.INTERVAL: str(wanted.interval),
        wire.COUNT_CPU: "1" if wanted.count_cpu else "0",
        wire.SNAPSHOTS: str(wanted.snapshots.resolve()),
    }


def _in_foreground() -> bool:
    """Does this process have a terminal whose Ctrl-C it and its children get?"""
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except (OSError, AttributeError):  # No terminal, or a system without such groups.
        return False
