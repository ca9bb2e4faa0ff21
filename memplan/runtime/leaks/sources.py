"""What is counted at the end of each step: one device's allocator, or where nothing counts, resident memory."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch

from memplan.errors import UsageError
from memplan.runtime.meters import cpu, cuda
from memplan.runtime.meters.host import host_reading


class Counts(NamedTuple):
    """One step's end."""

    nbytes: int
    """Alive."""
    storages: int | None
    """Live allocations; None where nobody counts them."""
    reserved: int | None
    """In segments; None without a caching allocator."""


class CountSource(NamedTuple):
    """Where counts come from."""

    name: str
    """``cuda:0``, ``cpu`` or ``resident``."""
    device: str
    """Type of the devices whose tensors are looked at."""
    read: Callable[[], Counts]
    """Some microseconds."""
    running: Callable[[], AbstractContextManager[None]]
    """To be open while it is read."""


def source(device: str | None = None) -> CountSource:
    """What to count: ``cuda:1``, ``cpu``, or ``resident`` (of this process).

    None chooses: the current CUDA device where this process uses one, else the CPU's tensors where they can be counted
    (a C++ compiler is needed), else resident memory.

    Raises:
        UsageError: There is no such thing to count.
    """
    if device is None:
        device = f"cuda:{torch.cuda.current_device()}" if cuda.device_count() else _cpu_or_resident()
    if device == "resident":
        return CountSource(device, "cpu", _resident, nullcontext)
    if device == "cpu":
        return CountSource(device, "cpu", _cpu, cpu.counting)
    kind, _, index = device.partition(":")
    if kind != "cuda" or (index and not index.isdigit()):
        raise UsageError(f"there is nothing to count on '{device}'", hint="cuda, cuda:1, cpu or resident")
    number = int(index) if index else torch.cuda.current_device()
    return CountSource(f"cuda:{number}", "cuda", lambda: _cuda(number), nullcontext)


def _cpu_or_resident() -> str:
    return "cpu" if cpu.can_count() else "resident"


def _cuda(index: int) -> Counts:
    stats = torch.cuda.memory_stats(index)
    return Counts(
        stats.get("allocated_bytes.all.current", 0),
        stats.get("allocation.all.current", 0),
        stats.get("reserved_bytes.all.current", 0),
    )


def _cpu() -> Counts:
    found = cpu.counters()
    return Counts(found.allocated, found.allocations - found.frees, None) if found else Counts(0, 0, None)


def _resident() -> Counts:
    return Counts(host_reading().resident, None, None)
