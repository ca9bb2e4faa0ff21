"""The command and the processes that it started, as the kernel sees them; one reading of all. Torch-free."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import psutil

from memplan.runtime.meters.host import host_reading
from memplan.runtime.meters.records import DeviceReading, HostReading, Reading
from memplan.runtime.monitor.wire import Message

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")
_VMSTAT = Path("/proc/vmstat")


class Merged(NamedTuple):
    """A reading, and whose it is."""

    reading: Reading
    ranks: tuple[int | None, ...]
    """One for each device."""
    step: int | None
    """The least advanced rank's."""
    steps: tuple[int | None, ...] = ()
    """One for each device: of the process that read it."""


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


def merge(said: Mapping[int, Message], cards: Sequence[DeviceReading], host: HostReading, *, seconds: float) -> Merged:
    """Merge.

    Returns:
        Devices as the ranks see them; where no process said a word the driver's; without any the CPU.
    """
    speakers = _speakers([message for message in said.values() if message.reading is not None])
    ranked = len(speakers) > 1
    found = [
        (device, message.rank if ranked else None, message.step)
        for message in speakers
        for device in (message.reading.devices if message.reading else ())
    ]
    if cards and not any(device.device != "cpu" for device, _, _ in found):
        found = [(card, None, None) for card in cards]
    devices = [(_with_host(device, host, rank), rank, step) for device, rank, step in found]
    devices = devices or [(cpu_from_outside(host), None, None)]
    steps = [message.step for message in speakers if message.step is not None]
    return Merged(
        reading=Reading(seconds=seconds, devices=tuple(device for device, _, _ in devices), host=host),
        ranks=tuple(rank for _, rank, _ in devices),
        steps=tuple(own for _, _, own in devices),
        step=min(steps, default=None),
    )


def _speakers(said: Collection[Message]) -> list[Message]:
    """One process for each rank, in order of ranks.

    Launchers and data workers import torch, too: a process with a rank goes before one without, one that uses a GPU
    before one that does not, and then the largest.
    """
    ranked = [message for message in said if message.rank is not None]
    best: dict[int | None, Message] = {}
    for message in ranked or said:
        best[message.rank] = max(best.get(message.rank, message), message, key=_weight)
    return [best[rank] for rank in sorted(best, key=lambda rank: -1 if rank is None else rank)]


def _weight(message: Message) -> tuple[bool, int]:
    if message.reading is None:
        return False, 0
    return any(device.device != "cpu" for device in message.reading.devices), message.reading.host.resident


def _with_host(device: DeviceReading, host: HostReading, rank: int | None) -> DeviceReading:
    """The CPU's reading as of now; a GPU's stays as its process has read it. Of ranks each has memory of its own."""
    if device.device != "cpu":
        return device
    resident = host.resident if rank is None else device.resident
    return replace(device, used=host.total - host.available, total=host.total, resident=resident)


def cpu_from_outside(host: HostReading) -> DeviceReading:
    """The CPU where no process counts its tensors."""
    used = host.total - host.available
    return DeviceReading(device="cpu", name="", used=used, total=host.total, resident=host.resident)
