"""Messages from a watched process to ``memplan monitor``: one datagram each, JSON.

Datagrams need no connection, keep their bounds, survive the death of their sender, and are dropped rather than waited
for, so that a monitor that hangs or dies holds nobody up.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from memplan.runtime.meters.records import DeviceReading, HostReading, Reading

ADDRESS = "MEMPLAN_MONITOR"
"""The variable that tells processes where the monitor listens."""
INTERVAL, COUNT_CPU, SNAPSHOTS = "MEMPLAN_MONITOR_INTERVAL", "MEMPLAN_MONITOR_COUNT_CPU", "MEMPLAN_MONITOR_SNAPSHOTS"
"""Variables that tell them what to do: seconds between readings; ``1``; a folder."""
LARGEST = 1 << 17
"""Bytes of a datagram that Linux and macOS let through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a watched process says."""

    kind: str
    """``reading``; ``blind`` (it cannot be read from inside, ``why``); ``oom``; ``end``."""
    pid: int
    """Who says it."""
    rank: int | None = None
    """Its rank in the job."""
    step: int | None = None
    """Calls of an optimizer's ``step`` so far, of the one that was called most."""
    reading: Reading | None = None
    """What it read last."""
    why: str = ""
    """``blind``: the error; ``end``: the exception that ended it, with its message, if one did."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """``oom``: ``device``, ``asked``, ``device_total``, ``device_free`` as the allocator says; ``snapshot``, a file."""


def encode(message: Message) -> bytes:
    """A message as a datagram."""
    return json.dumps(asdict(message)).encode()


def decode(datagram: bytes) -> Message | None:
    """A message out of a datagram; None where it is none, or of a version that says other things."""
    try:
        found = json.loads(datagram)
        known = {each.name for each in fields(Message)}
        reading = found.get("reading")
        values = {name: value for name, value in found.items() if name in known}
        return Message(**values | {"reading": None if reading is None else parse_reading(reading)})
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def parse_reading(found: Mapping[str, Any]) -> Reading:
    """A reading out of what ``asdict`` made of one."""
    return Reading(
        seconds=float(found["seconds"]),
        devices=tuple(DeviceReading(**_columns(each)) for each in found["devices"]),
        host=HostReading(**found["host"]),
    )


def _columns(device: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in device.items()}
