"""The answer: one frozen record per GPU, the source of every report (JSON contract 1.0)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import DataDependent
from memplan.measure.digest_records import HistoryDigest
from memplan.snapshot.records import Snapshot
from memplan.tracing.records import Folded, Phase


class Verdict(StrEnum):
    """Does the step fit?"""

    FITS = "fits"
    """The upper end of the interval is within usable memory."""
    TIGHT = "tight"
    """The point estimate fits, the upper end does not."""
    OOM = "oom"
    """The point estimate does not fit."""
    UNKNOWN = "unknown"
    """No trustworthy figure."""

    @property
    def code(self) -> str | None:
        """The rule that it breaks (``memplan.findings.rules``); None for FITS."""
        return _CODES.get(self)


_CODES = {Verdict.OOM: "MP001", Verdict.TIGHT: "MP002", Verdict.UNKNOWN: "MP003"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """The device of an estimate."""

    name: str
    title: str
    total_bytes: int
    usable_bytes: int

    @classmethod
    def of(cls, profile: GpuProfile) -> "GpuFacts":
        """Return what a profile says of it."""
        return cls(
            name=profile.name,
            title=profile.title,
            total_bytes=profile.total_bytes,
            usable_bytes=profile.usable_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalBasis:
    """What the interval around a peak rests on: runs that were measured, and how far off their predictions were."""

    workload: str
    """The job's class of workload (``memplan.measure.interval.classify``)."""
    level: float | None = None
    """Share of runs that the interval should hold; None, no claim, where too few of the class were measured."""
    runs: int = 0
    """Measured runs behind the ratios: of the class, or of all classes where those are too few; 0: the interval is from
    the allocator and the context alone."""
    sources: int = 0
    """Who measured them."""
    own_runs: int = 0
    """Measured runs of the class itself."""
    figure: str = ""
    """Which figure of them was measured, ``reserved`` or ``allocated``; empty where none was."""
    low_ratio: float = 1.0
    """Lower end of measured / predicted."""
    high_ratio: float = 1.0
    """Upper end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Where a peak is expected."""

    low_bytes: int
    """Lower end."""
    high_bytes: int
    """Upper end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakFacts:
    """The peak and its moment. Bytes are maxima over the replayed steps, each of its own.

    *The* peak, which phase, op, owners, breakdown, fragmentation and the allocator's map describe, is one moment: of
    all events at which most is reserved, the first at which most is allocated.
    """

    requested_bytes: int
    """Asked for and alive at once."""
    allocated_bytes: int
    """In live blocks of the caching allocator."""
    reserved_bytes: int
    """In its segments."""
    device_bytes: int
    """Reserved plus context and other memory outside the allocator: what nvidia-smi shows."""
    low_bytes: int
    """Lower end of the interval around ``device_bytes``."""
    high_bytes: int
    """Upper end."""
    basis: IntervalBasis | None = None
    """What the interval rests on; None where there are no figures."""
    allocated_interval: Band | None = None
    """Where ``allocated_bytes`` are expected, on the same basis; None likewise."""
    reserved_interval: Band | None = None
    """Where ``reserved_bytes`` are expected."""
    phase: Phase
    op: str
    module: str
    source: str
    host_bytes: int = 0
    """Host memory of the traced rank's tensors: what is offloaded, pinned buffers and paged states included."""
    nvme_bytes: int = 0
    """In files on its disk."""
    after_epoch_bytes: int = 0
    """Device memory of a program at the end of its epoch (an evaluation), where its steps take less; else 0."""
    data_pipeline_bytes: int = 0
    """Most host memory of its data loader, beside ``host_bytes``; 0 where nothing was said of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCache:
    """Keys and values at the end of a generation."""

    bytes: int
    """As traced: the tensors that transformers keeps."""
    block_size: int | None = None
    """Tokens per block of the what-if; None where none was asked for."""
    blocks: int = 0
    """Of all layers and sequences."""
    paged_bytes: int = 0
    """All of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Bytes alive at the peak that one module (or source line) owns."""

    module: str
    source: str
    category: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change and what it would bring."""

    change: str
    """What to type or change."""
    device_bytes: int
    """Predicted device peak after it, traced and replayed like the estimate itself."""
    slowdown: float
    """Extra time for each token, or sample, as a share of what it takes now (``memplan.timing``); 0.0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """An optimization, and what the job takes where it is the other way: off if it is on, on if it is off."""

    optimization: str
    """What is typed for it."""
    on: bool
    """Does the job have it?"""
    device_bytes: int | None = None
    """Predicted device peak the other way, traced like the estimate itself; None where it cannot be traced."""
    saved_bytes: int | None = None
    """What it saves, or would save; negative where it takes more."""
    reason: str = ""
    """Why there are no figures; empty where there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedPeak:
    """The peak with one way of routing tokens to experts, and its moment."""

    routing: DataDependent
    """How routers choose, as ``--data-dependent`` says it."""
    verdict: Verdict
    """Does it fit? UNKNOWN where it cannot be traced."""
    device_bytes: int | None = None
    """Device peak, traced like the estimate itself; None where it cannot be."""
    requested_bytes: int | None = None
    """Of it asked for and alive at once, whatever the allocator's segments make of that."""
    low_bytes: int | None = None
    """Lower end of its interval."""
    high_bytes: int | None = None
    """Upper end."""
    phase: Phase = "setup"
    op: str = ""
    module: str = ""
    source: str = ""
    reason: str = ""
    """Why there are no figures; empty where there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmentation:
    """Shares at the peak: of what is reserved there, the breakdown's ``fragmentation`` is both together."""

    external: float
    """Of reserved bytes, those in no live block."""
    internal: float
    """Of bytes in live blocks, those that nobody asked for."""

    @property
    def together(self) -> float:
        """Of reserved bytes, those that nobody asked for."""
        return 1 - (1 - self.external) * (1 - self.internal)


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRisk:
    """How likely a run of steps of drawn lengths runs out of memory, fragmentation included."""

    lengths: str
    """Where lengths come from, as typed."""
    longest: int
    """The longest that can be drawn, of which the estimate itself is."""
    steps: int
    """Steps of the run."""
    seed: int
    """Of the drawn lengths."""
    chance: float
    """How likely it runs out, if the device takes what is predicted."""
    low_chance: float
    """Lower end of its 95 % interval: what the runs that were played leave open."""
    high_chance: float
    """Upper end."""
    least_chance: float
    """How likely if all peaks were as low as the interval around the predicted one allows."""
    most_chance: float
    """How likely if they were as high."""
    device_bytes: int
    """Device peak of the fullest run that was drawn, fragmentation included; where some run out, of one that nothing
    limits if it is more."""
    runs: int
    """Runs that were played; 0 where no step fits."""
    played_steps: int
    """Their steps."""
    assumptions: tuple[str, ...] = ()
    """What was assumed of steps between traced lengths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What the GPUs of a job cost."""

    per_hour: float
    """For an hour of all of them."""
    gpus: int
    """How many they are."""
    currency: str = ""
    """As the table calls it; empty where it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One job on one GPU. ``breakdown`` sums to ``peak.device_bytes``."""

    target: str
    verdict: Verdict
    gpu: GpuFacts
    parameters: int
    trainable_parameters: int
    options: Mapping[str, str]
    """What the step was, field → value as text (batch_size, precision, optimizer…), for the report's job line."""
    peak: PeakFacts
    breakdown: Mapping[str, int]
    """Category (``memplan.lifetime.records.Category``), ``fragmentation``, ``context`` → bytes."""
    owners: tuple[Owner, ...]
    """Largest first."""
    fragmentation: Fragmentation
    flops_per_step: int
    """Of one repeated optimizer step."""
    advice: tuple[Advice, ...]
    """Sorted by slowdown."""
    assumptions: tuple[str, ...]
    not_modelled: tuple[str, ...]
    provenance: Mapping[str, str]
    """Field → where its value came from."""
    timings: Mapping[str, float]
    """``trace_seconds``, ``replay_seconds``."""
    steps_traced: int
    repeats: bool
    torch_version: str
    memplan_version: str
    kv_cache: KvCache | None = None
    """Where transformers generates; part of the peak as traced, not as blocks."""
    folded: Folded | None = None
    """Whether shallower models were traced in place of the whole; None where none was tried."""
    attention: Mapping[str, int] = field(default_factory=dict)
    """Category → bytes that attention holds at the peak, its projections included; part of ``breakdown``."""
    tail: TailRisk | None = None
    """How likely lengths that differ run out of memory, where somebody asked."""
    savings: tuple[Saving, ...] = ()
    """What each optimization saves, where somebody asked (``--explain``); those that are on first."""
    envelope: tuple[RoutedPeak, ...] = ()
    """The peak with each way of routing tokens to experts, where somebody asked (``--explain``) and routers choose; the
    mildest first."""
    price: Price | None = None
    """What the job's GPUs cost, where the user gave a table that says so (``--prices``)."""

    @property
    def headroom_bytes(self) -> int:
        """Usable minus predicted device peak; negative when it does not fit."""
        return self.gpu.usable_bytes - self.peak.device_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEstimate:
    """An estimate with the history of its replay, which is large: made only where somebody asks for it."""

    estimate: Estimate
    """The answer."""
    history: Snapshot | None
    """Every event of the replay, up to the step in which its peaks are reached; None where the verdict is UNKNOWN or
    nobody asked for it."""
    digest: HistoryDigest | None = None
    """The same in what a page can show; None likewise."""
