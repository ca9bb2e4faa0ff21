"""The command and the processes that it started, as the kernel sees them. Torch-free."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil

from memplan.runtime.meters.host import host_reading
from memplan.runtime.meters.records import HostReading

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")
_VMSTAT = Path("/proc/vmstat")


def tree(pid: int) -> tuple[frozenset[int], int]:
    """Ids of a process and all that it started, and their resident memory: pages that they share count for each."""
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.Error:
        return frozenset(), 0
    return frozenset(process.pid for process in processes), sum(_resident(process) for process in processes)


def host_of(resident: int) -> HostReading:
    """The host, with so much resident memory in place of this process's own."""
    return replace(host_reading(), resident=resident)


def oom_kills() -> int:
    """Processes that the kernel has killed for lack of memory.

    They are those of this process's control group, else those of the whole machine; 0 where nobody says.
    """
    for path in (*_group_files(), _VMSTAT):
        try:
            pairs = (line.split() for line in path.read_text("ascii").splitlines())
            return next(int(value) for name, value in pairs if name == "oom_kill")
        except (OSError, ValueError, StopIteration):
            continue
    return 0


def _group_files() -> Iterator[Path]:
    """Where the control group counts kills; in a container its own group may be the root of what it sees."""
    try:
        lines = _OWN_GROUP.read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:  # Version 2.
            yield _GROUPS / path.strip("/") / "memory.events"
            yield _GROUPS / "memory.events"
        elif "memory" in controllers.split(","):
            yield _GROUPS / "memory" / path.strip("/") / "memory.oom_control"
            yield _GROUPS / "memory" / "memory.oom_control"


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
