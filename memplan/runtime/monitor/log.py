"""What happens as lines of JSON, schema monitor-1.0: integers are bytes, minor versions only add. Torch-free."""

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from memplan.contract.document import SCHEMA_VERSION, Document
from memplan.contract.fields import Attribute
from memplan.contract.table import Constant, Table, made, only, or_null
from memplan.errors import UsageError
from memplan.findings.records import Finding
from memplan.runtime.meters.records import DeviceReading, HostReading
from memplan.runtime.monitor.outcome import Ending
from memplan.runtime.monitor.records import Check, Health, Level, RunPlan, Thresholds
from memplan.runtime.monitor.wire import Message

_LOG = logging.getLogger("memplan")


class Log:
    """Appends lines to a file; what was there stays. Its methods may be called from any thread.

    Raises:
        UsageError: The file cannot be opened.
    """

    def __init__(self, path: Path | str) -> None:
        try:
            # Without a buffer, whose rest ``close`` would have to write where nothing can be written any more.
            self._file = Path(path).open("ab", buffering=0)  # noqa: SIM115 - until ``close``.
        except OSError as error:
            raise UsageError(f"cannot write '{path}': {error.strerror}") from error
        self._lock = Lock()
        self.problem = ""
        """Why the file ends early: a full disk ends the log, not the run. Empty: it does not."""

    def write(self, line: "Line") -> None:
        """Append one line, whole; nothing more after one that could not be written."""
        text = json.dumps({"schema_version": SCHEMA_VERSION, **LINES.plain(line)}, sort_keys=True)
        with self._lock:
            if self._file.closed or self.problem:
                return
            try:
                self._file.write(text.encode() + b"\n")
            except OSError as error:
                self.problem = f"the log '{self._file.name}' ends early: {error.strerror}"
                _LOG.warning("%s", self.problem)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()


class StartLine(NamedTuple):
    """The first line of a run: what is run, and what it is held against."""

    seconds: float
    """Since the epoch."""
    command: tuple[str, ...]
    """What is run."""
    plan: RunPlan | None
    """What was predicted."""
    thresholds: Thresholds
    """Where levels begin."""


class OomLine(NamedTuple):
    """A CUDA allocation that failed for good."""

    seconds: float
    """Since the epoch."""
    message: Message
    """What the process said."""


class EndLine(NamedTuple):
    """The last line of a run."""

    seconds: float
    """Since the epoch."""
    ending: Ending
    """How it ended."""


class DeviceCheck(NamedTuple):
    """A device, read and judged."""

    read: DeviceReading
    health: Health


class HostCheck(NamedTuple):
    """The host, read and judged."""

    read: HostReading
    health: Health


class RunAdvice(NamedTuple):
    """What to do."""

    code: str
    """The rule that it is of."""
    sentence: str
    """What was found."""
    remedy: str
    """What to do about it."""


Line = StartLine | Check | OomLine | EndLine


def recommended(findings: Iterable[Finding]) -> tuple[RunAdvice, ...]:
    """Return what was found, each with what to do about it."""
    return tuple(RunAdvice(finding.code, finding.message, finding.fix) for finding in findings)


def _devices(check: Check) -> tuple[DeviceCheck, ...]:
    """Reading and judgement of each device together."""
    return tuple(map(DeviceCheck, check.reading.devices, check.devices))


def _fact(name: str, hint: Any, description: str, default: Any = None) -> Attribute:
    return made(Message, hint, description, lambda message: message.facts.get(name, default))


LINES = Document(
    name="monitor",
    root=Line,
    tables={
        Level: "word",
        StartLine: Table(keys={"kind": Constant("start")}),
        RunPlan: Table(
            keys={f"{name}_bytes": name for name in ("allocated", "reserved", "device", "low", "high", "usable")},
            omit=("total", "phase", "module", "breakdown", "curve"),
        ),
        Check: Table(
            keys={
                "kind": Constant("check"),
                "seconds": "reading.seconds",
                "devices": _devices,
                "host": made(Check, HostCheck, "The host.", lambda check: HostCheck(check.reading.host, check.host)),
            },
            omit=("recommendations",),
        ),
        DeviceCheck: Table(spread=("read", "health")),
        DeviceReading: Table(
            keys={
                **only("uuid", "retries", "ooms").keys,
                **{f"{name}_bytes": name for name in ("used", "allocated", "requested", "reserved", "inactive")},
                **{f"{name}_bytes": name for name in ("peak_allocated", "peak_reserved")},
            },
            rest=False,
        ),
        HostCheck: Table(spread=("read", "health")),
        HostReading: Table(keys={f"{name}_bytes": name for name in ("resident", "available", "swap_used")}, rest=False),
        Health: Table(
            keys={
                **{f"{name}_bytes": name for name in ("limit", "demand", "measured", "predicted", "predicted_high")},
                "drift_bytes": "drift",
                "utilisation": "utilisation",
                "figure": or_null("figure"),
            }
        ),
        Finding: Table(
            keys={
                "code": "code",
                "level": made(Finding, Level, "How bad this alone is.", lambda reason: Level.of(reason.severity)),
                "sentence": "message",
            },
            rest=False,
        ),
        OomLine: Table(keys={"kind": Constant("oom")}, spread=("message",)),
        Message: Table(
            keys={
                **only("pid", "rank", "step").keys,
                "device": _fact("device", int | None, "Number of the device."),
                "asked_bytes": _fact("asked", int | None, "What was asked for."),
                "device_total_bytes": _fact("device_total", int | None, "All that the device has."),
                "device_free_bytes": _fact("device_free", int | None, "What was free of it."),
                "snapshot": _fact("snapshot", str, "File with the allocator's state; empty where there is none.", ""),
            },
            rest=False,
        ),
        EndLine: Table(keys={"kind": Constant("end")}, spread=("ending",)),
        Ending: Table(keys={"exit_code": "exit_code", "wall_seconds": "seconds"}, omit=("code", "oom")),
    },
)
"""A line of the log."""
PLAN = Document(name="plan", root=RunPlan, tables=LINES.tables)
"""A plan without its timeline."""
