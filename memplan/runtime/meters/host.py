"""Host memory: of this process, and what its machine or container can still give. Torch-free."""

import os
from functools import cache
from pathlib import Path

import psutil

from memplan.runtime.meters.records import HostReading

_CGROUP = Path("/sys/fs/cgroup")
"""Where a container sees its own limits."""
_NAMES = (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
"""Of the limit, of what counts against it, and of its parts: version 2 of control groups, then version 1."""


def host_reading(pid: int | None = None) -> HostReading:
    """Read the host, with the resident memory of a process; None: this one.

    Raises:
        psutil.Error: There is no such process.
    """
    memory = psutil.virtual_memory()
    total, available = int(memory.total), int(memory.available)
    limit = container_limit()
    if limit is not None and limit < total:
        total, available = limit, min(available, max(0, limit - _container_use()))
    return HostReading(
        resident=int(_process(os.getpid() if pid is None else pid).memory_info().rss),
        available=available,
        total=total,
        swap_used=int(psutil.swap_memory().used),
    )


def container_limit() -> int | None:
    """Bytes that a container may use; None where nobody limits it."""
    found = (_text(limit) for limit, _, _ in _NAMES)
    return next((int(text) for text in found if text.isdigit()), None)


def _container_use() -> int:
    """Bytes that count against the limit and cannot be taken back at once: page cache of files that nobody uses can."""
    for _, use, parts in _NAMES:
        if (used := _text(use)).isdigit():
            pairs = (line.split() for line in _text(parts).splitlines())
            return int(used) - next((int(value) for key, value in pairs if key == "inactive_file"), 0)
    return 0


def _text(name: str) -> str:
    try:
        return (_CGROUP / name).read_text("ascii").strip()
    except OSError:
        return ""


@cache
def _process(pid: int) -> psutil.Process:
    return psutil.Process(pid)
