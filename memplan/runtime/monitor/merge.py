"""One reading out of all that is known of a run: what its processes said, what the driver and the kernel say."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from memplan.runtime.meters.records import DeviceReading, HostReading, Reading
from memplan.runtime.monitor.wire import Message


class Merged(NamedTuple):
    """A reading, and whose it is."""

    reading: Reading
    ranks: tuple[int | None, ...]
    """One for each device."""
    step: int | None
    """The least advanced rank's."""
    steps: tuple[int | None, ...] = ()
    """One for each device: of the process that read it."""


def merge(said: Mapping[int, Message], cards: Sequence[DeviceReading], host: HostReading, *, seconds: float) -> Merged:
    """Merge.

    Args:
        said: Process → its last reading.
        cards: What the driver says of the GPUs that the run may use.
        host: The host, with the resident memory of all processes of the run.
        seconds: Now.

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
