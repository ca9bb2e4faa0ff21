"""What the monitor knows and answers. Torch-free; bytes are integers, shares are of 1."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from memplan.findings.records import SEVERITIES, Finding, Severity
from memplan.findings.utilization import BALANCED
from memplan.runtime.meters.records import Reading
from memplan.units import Bytes


class Level(IntEnum):
    """How bad it is; higher is worse."""

    NORMAL = 0
    """Nothing to do."""
    WARNING = 1
    """Look at it before the next long run."""
    CRITICAL = 2
    """A somewhat larger step runs out of memory."""
    EMERGENCY = 3
    """The next step may."""

    @property
    def word(self) -> str:
        """As texts, logs and labels say it (``normal``)."""
        return self.name.lower()

    @property
    def severity(self) -> Severity:
        """Of a finding that raises it."""
        return SEVERITIES[-1 - self]

    @classmethod
    def of(cls, severity: Severity) -> "Level":
        """Return the level that a finding raises."""
        return cls(len(SEVERITIES) - 1 - SEVERITIES.index(severity))


class PlanPhase(NamedTuple):
    """A stretch of the predicted timeline."""

    phase: str
    """What the step does."""
    start: int
    """First event."""
    end: int
    """First event after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCurve:
    """The predicted timeline of the traced steps: columns of the same length."""

    events: tuple[int, ...]
    """Position in the trace, rising."""
    allocated: tuple[Bytes, ...]
    """Bytes in live blocks at each."""
    reserved: tuple[Bytes, ...]
    """Bytes in segments at each."""
    categories: Mapping[str, tuple[Bytes, ...]]
    """Category → bytes of live blocks at each."""
    phases: tuple[PlanPhase, ...]
    """What the steps do when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What a training process knows of a prediction, for one GPU; ``memplan.runtime.monitor.plan`` reads it."""

    target: str
    """As it was typed."""
    gpu: str
    """Name of the GPU's profile; ``cpu`` for training on the CPU."""
    verdict: str
    """``fits``, ``tight`` or ``oom``."""
    total: Bytes
    """All memory of the GPU; 0 for a device without a fixed limit."""
    usable: Bytes
    """What a fresh process can have of it, context included; 0 likewise."""
    allocated: Bytes
    """Predicted peak in live blocks."""
    reserved: Bytes
    """Predicted peak in segments."""
    device: Bytes
    """Predicted peak with the CUDA context: what nvidia-smi shows."""
    low: Bytes
    """Lower end of the device peak's interval."""
    high: Bytes
    """Upper end."""
    phase: str
    """Where the peak is: ``setup``, ``forward``, ``backward`` or ``optimizer``."""
    module: str
    """Module at the peak; may be empty."""
    breakdown: Mapping[str, Bytes]
    """Category → bytes; sums to ``device``."""
    curve: PlanCurve | None = None
    """The timeline, where the file has one (``memplan estimate --timeline``)."""

    @property
    def outside(self) -> int:
        """Predicted bytes outside the allocator: the CUDA context and libraries."""
        return self.device - self.reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Where levels begin. Defaults are choices, each with its reason; none is fitted to anything."""

    warning: float = BALANCED.warn
    """Share of the limit: from here on a batch of a tenth more does not fit, if memory follows the batch."""
    critical: float = BALANCED.critical
    """Nor does one of a twentieth more."""
    emergency: float = BALANCED.emergency
    """What is left is about what cuBLAS workspaces, NCCL buffers and a longer batch take when they first come."""
    release: float = 0.02
    """A level ends only when the share falls so far below its beginning: more than one batch differs from the next."""
    fragmentation: float = 0.2
    """Share of reserved bytes stuck in segments partly in use; most replayed runs of real training stay below it."""
    drift: int = 0
    """Bytes above the plan's upper end that are still no drift: the interval has its own margin."""
    imbalance: float = 0.15
    """Difference of the fullest and the emptiest GPU, as share of the limit: a job is as large as its fullest rank."""
    imbalance_bytes: int = 1 << 28
    """Ranks that share the host differ by less than this without a reason: what a process imports and keeps cached."""
    lag: int = 2
    """Steps that ranks which meet in every step may be apart: one is under way, one has not been told yet."""
    foreign: int = 1 << 30
    """Bytes on a device that neither this allocator nor the predicted context explains: no context is that far off."""
    steps_until_full: float = 2000.0
    """Growth is reported when the device would be full after fewer steps, or seconds where no steps are known."""
    warm_up: int = 5
    """Steps (checks, where none are known) that no trend counts: optimizer state and caches come with the first."""
    window: int = 256
    """Checks that a trend looks back on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """How allocated bytes grow, by the median of slopes between pairs of checks (Theil and Sen)."""

    per_step: float
    """Bytes per step; per second where checks have no step."""
    by: str
    """``step`` or ``second``."""
    checks: int
    """How many checks it rests on; they are chosen evenly from the window."""
    growing: bool
    """Do checks agree on growth (Kendall's rank test), and is it more than noise of the allocator's rounding?"""
    until_full: float | None
    """Steps, or seconds, until the headroom is used up at this pace; None where it does not grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One device, or the host, judged."""

    device: str
    """As in its reading (``cuda:0``, ``cpu``), or ``host``."""
    name: str = ""
    """The driver's name; empty for the host."""
    rank: int | None = None
    """Rank of the process that read it; None where there is one process, or where it was read from outside."""
    level: Level = Level.NORMAL
    """The worst of its reasons."""
    reasons: tuple[Finding, ...] = ()
    """Why, worst first; empty where there is nothing to say. A note raises no level."""
    limit: int
    """Bytes that there are."""
    demand: int
    """Bytes of them that cannot be had otherwise: peak of live blocks, what is stuck beside them, other processes."""
    fragmentation: float | None = None
    """Share of reserved bytes stuck in segments partly in use; None where there are no segments."""
    figure: str = ""
    """Which figure is compared with the plan: ``reserved``, ``allocated``, ``used``; empty where none can be."""
    measured: int | None = None
    """The most of that figure so far."""
    predicted: int | None = None
    """The plan's peak of it."""
    predicted_high: int | None = None
    """The upper end of the plan's interval for it."""
    trend: Trend | None = None
    """How it grows; None while too little is known."""
    step: int | None = None
    """Optimizer steps of its rank; None where nobody counts them."""

    @property
    def utilisation(self) -> float:
        """Demand as share of the limit."""
        return self.demand / self.limit if self.limit else 0.0

    @property
    def headroom(self) -> int:
        """Bytes left; negative where more is asked for than there is."""
        return self.limit - self.demand

    @property
    def headroom_ratio(self) -> float | None:
        """The same as a share of the limit; None where there is none."""
        return self.headroom / self.limit if self.limit else None

    @property
    def drift(self) -> int | None:
        """Bytes measured beyond the upper end of the plan (negative: below it); None where they cannot be compared."""
        if self.measured is None or self.predicted_high is None:
            return None
        return self.measured - self.predicted_high


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionUse:
    """What one part of the step uses, where a profiler says so."""

    name: str
    """``forward``, ``optimizer`` …"""
    bytes: int
    """Peak above what was there when it began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The outcome of one check."""

    number: int
    """Counted from 0."""
    step: int | None
    """Optimizer step that it follows; None where nobody knows."""
    reading: Reading
    """What was read."""
    devices: tuple[Health, ...]
    """One for each of ``reading.devices``, in the same order."""
    host: Health
    """The host: its demand is what cannot be taken of it any more."""
    level: Level
    """The worst of all."""
    recommendations: tuple[Finding, ...]
    """The worst reason of each code, worst first."""
    regions: tuple[RegionUse, ...] = ()
    """Of the profiler, if one runs."""
    notes: tuple[str, ...] = ()
    """What stands in the way of a comparison: a plan for another GPU, no counters for CPU tensors."""

    @property
    def checks(self) -> int:
        """Checks so far, with this one."""
        return self.number + 1
