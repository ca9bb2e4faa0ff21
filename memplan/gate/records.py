"""What the gate found: one row per job and GPU, one finding per rule that is not met."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from memplan.errors import ExitCode
from memplan.findings.records import Finding
from memplan.measure.digest_records import HistoryDigest
from memplan.measure.records import Estimate
from memplan.units import Bytes

Outcome = Literal["passed", "failed", "unknown"]
"""``unknown``: no trustworthy figure, and the policy lets that pass (exit 3); an informational job then passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Bytes at the peak that one owner has now and had in the baseline."""

    module: str
    """Path of the module; empty for what belongs to none."""
    category: str
    """``memplan.lifetime.records.Category``."""
    source: str
    """``model.py:41``, now; empty where unknown."""
    before: Bytes
    """In the baseline; 0: it is new."""
    after: Bytes
    """Now; 0: it is gone."""

    @property
    def grown(self) -> int:
        """Bytes more than before; negative for fewer."""
        return self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two estimates of one job on one GPU."""

    before: Estimate
    """The baseline's."""
    after: Estimate
    """The new one."""
    categories: Mapping[str, tuple[Bytes, Bytes]]
    """Category of the breakdown → before and after."""
    growth: tuple[Growth, ...]
    """What changed, the largest growth first."""

    @property
    def grown(self) -> int:
        """Bytes of the device peak more than before."""
        return self.after.peak.device_bytes - self.before.peak.device_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job on one GPU."""

    job: str
    """Its name."""
    gpu: str
    """The profile's name."""
    outcome: Outcome
    """Does it pass?"""
    estimate: Estimate | None
    """None where there is none; a finding says why."""
    comparison: Comparison | None
    """With the baseline; None where that has no figures of it."""
    findings: tuple[Finding, ...]
    """Errors first. ``error`` fails the row; ``warning`` is what an informational job would fail for, and a missing
    figure that fails nothing. The fix says where to change the limit, or what to do, and then the policy's message."""
    limit: Bytes | None
    """The least of all limits that the policy sets on this GPU, in bytes of the device peak; None: none."""
    informational: bool = False
    """It cannot fail."""
    cached: bool = False
    """Nothing has changed since it was last traced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The gate's answer."""

    project: Path
    """The project file."""
    rows: tuple[Row, ...]
    """In the order of the file, its GPUs in theirs."""
    baseline: Path | None
    """What was compared with; None: nothing."""
    notes: tuple[str, ...] = ()
    """What concerns no single row: entries of the baseline without a job …"""
    seconds: float = 0.0
    """Wall time."""
    digests: Mapping[tuple[str, str], HistoryDigest] = field(default_factory=dict)
    """Job and GPU → the history of its replay, for a page; only where it is asked for."""

    @property
    def exit_code(self) -> ExitCode:
        """1 if a row fails, else 3 if one is unknown, else 0."""
        outcomes = {row.outcome for row in self.rows}
        if "failed" in outcomes:
            return ExitCode.POLICY
        return ExitCode.UNKNOWN if "unknown" in outcomes else ExitCode.DONE
