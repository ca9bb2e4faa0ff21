"""What happens as lines of JSON, schema monitor-1.0: integers are bytes, minor versions only add. Torch-free."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any

from memplan.errors import UsageError
from memplan.runtime.monitor.outcome import Ending
from memplan.runtime.monitor.records import Check, Health, Plan, Reason, Thresholds
from memplan.runtime.monitor.wire import Message

SCHEMA_VERSION = "1.0"
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

    def write(self, line: Mapping[str, Any]) -> None:
        """Append one line, whole; nothing more after one that could not be written."""
        text = json.dumps({"schema_version": SCHEMA_VERSION, **line}, sort_keys=True)
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


def start_document(
    *, seconds: float, command: tuple[str, ...], plan: Plan | None, limits: Thresholds
) -> dict[str, Any]:
    """The first line of a run: what is run, and what it is held against."""
    return {
        "kind": "start",
        "seconds": seconds,
        "command": list(command),
        "plan": None if plan is None else plan_document(plan),
        "thresholds": asdict(limits),
    }


def plan_document(plan: Plan) -> dict[str, Any]:
    """A plan without its timeline."""
    return {
        "target": plan.target,
        "gpu": plan.gpu,
        "verdict": plan.verdict,
        "allocated_bytes": plan.allocated,
        "reserved_bytes": plan.reserved,
        "device_bytes": plan.device,
        "low_bytes": plan.low,
        "high_bytes": plan.high,
        "usable_bytes": plan.usable,
    }


def check_document(check: Check) -> dict[str, Any]:
    """One check; ``devices`` hold reading and judgement together."""
    return {
        "kind": "check",
        "number": check.number,
        "step": check.step,
        "seconds": check.reading.seconds,
        "level": check.level.word,
        "devices": [
            {
                "uuid": read.uuid,
                "used_bytes": read.used,
                "allocated_bytes": read.allocated,
                "requested_bytes": read.requested,
                "reserved_bytes": read.reserved,
                "inactive_bytes": read.inactive,
                "peak_allocated_bytes": read.peak_allocated,
                "peak_reserved_bytes": read.peak_reserved,
                "retries": read.retries,
                "ooms": read.ooms,
                **_health(health),
            }
            for read, health in zip(check.reading.devices, check.devices, strict=True)
        ],
        "host": {
            **_health(check.host),
            "resident_bytes": check.reading.host.resident,
            "available_bytes": check.reading.host.available,
            "swap_used_bytes": check.reading.host.swap_used,
        },
        "regions": [{"name": region.name, "bytes": region.bytes} for region in check.regions],
        "notes": list(check.notes),
    }


def oom_document(message: Message, *, seconds: float) -> dict[str, Any]:
    """A CUDA allocation that failed for good."""
    facts = {f"{name}_bytes": message.facts.get(name) for name in ("asked", "device_total", "device_free")}
    return {
        "kind": "oom",
        "seconds": seconds,
        "pid": message.pid,
        "rank": message.rank,
        "step": message.step,
        "device": message.facts.get("device"),
        "snapshot": message.facts.get("snapshot", ""),
        **facts,
    }


def end_document(ending: Ending, *, seconds: float) -> dict[str, Any]:
    """The last line of a run."""
    return {
        "kind": "end",
        "seconds": seconds,
        "exit_code": ending.exit_code,
        "wall_seconds": ending.seconds,
        "why": ending.why,
        "ooms": ending.ooms,
        "oom_kills": ending.oom_kills,
    }


def _health(health: Health) -> dict[str, Any]:
    return {
        "device": health.device,
        "name": health.name,
        "rank": health.rank,
        "level": health.level.word,
        "reasons": [_reason(reason) for reason in health.reasons],
        "limit_bytes": health.limit,
        "demand_bytes": health.demand,
        "utilisation": health.utilisation,
        "fragmentation": health.fragmentation,
        "figure": health.figure or None,
        "measured_bytes": health.measured,
        "predicted_bytes": health.predicted,
        "predicted_high_bytes": health.predicted_high,
        "drift_bytes": health.drift,
        "trend": None if health.trend is None else asdict(health.trend),
    }


def _reason(reason: Reason) -> dict[str, str]:
    return {"code": reason.code, "level": reason.level.word, "sentence": reason.sentence}
