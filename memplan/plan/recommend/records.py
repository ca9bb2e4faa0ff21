"""What was tried for a job, what came of it, and what is recommended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from memplan.errors import UsageError
from memplan.findings.utilization import Utilization, UtilizationThresholds
from memplan.job.parallel import Parallel
from memplan.job.sayable import Sayable
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.plan.batch.records import CriticalBatch
from memplan.timing.rates import StepTime
from memplan.units import Bytes

Group = Literal[
    "checkpoint", "split", "parallel", "offload", "attention", "loss", "optimizer-step", "precision", "optimizer",
    "lora", "quantize",
]  # fmt: skip
"""Changes of one group exclude each other; ``--keep`` names groups."""
NUMERICS: tuple[Group, ...] = ("precision", "optimizer", "lora", "quantize")
"""Groups that change what is computed."""
ALLOWABLE: tuple[Group, ...] = (*NUMERICS, "split")
"""What ``--allow`` names: a split of the batch changes what is computed where the model has batch statistics."""
Ending = Literal["best", "best_of_proved", "nothing_fits", "not_found"]
"""What a search comes to."""
NOT_TRACED = "not traced"
"""Why a way was not taken of which nothing is proved."""
NO_BETTER = "no better than the best, by a bound"
"""Why a way was not traced that cannot be better."""
UNREACHED = "not traced within the budget"
"""Why nothing is known of a single change that was not traced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """What a configuration may take."""

    utilization: Utilization | None = None
    """Room to leave on the device; None leaves what the estimate's interval needs."""
    host_bytes: int | None = None
    """Host memory that one rank may take; None: no limit."""
    step_seconds: float | None = None
    """Time of one optimizer step at most; None: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How to search."""

    gpus: int = 1
    """Ranks."""
    target_batch: int | None = None
    """Samples per optimizer step, over all ranks; None keeps the job's own."""
    allow: tuple[Group, ...] = ()
    """Groups of ``ALLOWABLE`` that may change what is computed."""
    keep: tuple[Group, ...] = ()
    """Groups that may not."""
    alpha: float = 0.0
    """Weight of memory, as a share of the device."""
    beta: float = 1.0
    """Weight of time, as a multiple of the job's own time per sample."""
    budget_seconds: float = 60.0
    """Wall time of the search, the trace of the job as given among it."""
    budget_traces: int | None = None
    """Ways that are traced at most; None: no limit."""
    processes: int | None = None
    """Traces at once; None: as many as processors."""
    limits: StepLimits = field(default_factory=StepLimits)
    """What a configuration may take."""
    plan_file: Path | None = None
    """Where a checkpoint plan may be written; None: none is made."""
    noise_scale: float | None = None
    """The user's gradient noise scale, in samples."""
    emitted: tuple[Sayable, ...] = ()
    """Frameworks whose files must be able to say what is recommended."""

    @property
    def has_few_samples(self) -> bool:
        """Are there fewer samples than ranks, so that some must share layers?"""
        return self.target_batch is not None and self.target_batch < self.gpus

    def refusal(self, spec: JobSpec) -> UsageError | None:
        """Return why one of the frameworks cannot be given a job; None where all can."""
        return next(filter(None, (each.refusal(spec) for each in self.emitted)), None)


def shares(parallel: Parallel) -> int:
    """Micro-batches that all ranks together take through one forward and backward."""
    return parallel.data_ranks * parallel.step_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to run the job."""

    spec: JobSpec
    """The job with the changes made."""
    changes: tuple[str, ...]
    """What to type that differs from the job as given; empty for the job itself."""
    groups: tuple[Group, ...] = ()
    """Groups of the changes, in the same order."""

    @property
    def words(self) -> str:
        """The changes in one line."""
        return " ".join(self.changes) or "as given"

    @property
    def global_batch(self) -> int:
        """Samples per optimizer step, over all ranks."""
        return self.spec.batch_size * self.spec.grad_accum * shares(self.spec.parallel)

    @property
    def counted(self) -> Literal["samples", "batches"]:
        """What a batch is counted in: nobody knows how many samples one of a program has that names no argument."""
        target = self.spec.target
        return "batches" if isinstance(target, ScriptTarget) and "batch_size" not in target.varied else "samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A candidate whose own trace was replayed and timed."""

    candidate: Candidate
    """What was traced."""
    device_bytes: Bytes
    """Device peak of the worst rank that was traced."""
    high_bytes: Bytes
    """Upper end of its interval."""
    allocated_bytes: Bytes
    """Peak of the allocator's live blocks."""
    reserved_bytes: Bytes
    """Peak of the allocator's segments."""
    host_bytes: Bytes
    """Peak of what one rank holds in host memory."""
    fits: bool
    """Is it within every limit?"""
    reason: str
    """Why not; empty if it is."""
    time: StepTime
    """Of one optimizer step."""
    cost: float
    """alpha x memory + beta x time; what candidates are ranked by."""
    traced_micro_batches: int
    """Micro-batches in the trace: later ones repeat the last of them."""
    stage_bytes: tuple[Bytes, ...] = ()
    """Device peak of each pipeline stage, the first stage first; empty where there is no pipeline."""

    @property
    def samples_per_second(self) -> float:
        """Over all ranks."""
        return self.candidate.global_batch / self.time.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A candidate that is not recommended, and why."""

    candidate: Candidate
    """What was tried, or only thought of."""
    reason: str
    """Why it lost."""
    traced: bool
    """Was it traced, or is the reason its predicted size?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleChange:
    """One change alone, on this very job."""

    candidate: Candidate
    """The job with it."""
    allowed: bool
    """May the search use it?"""
    saved_bytes: int | None
    """Device bytes fewer than the job as given; None where it cannot be made."""
    extra_time: float | None
    """Extra time per sample as a share; negative if it is faster; None where it cannot be made."""
    fits: bool
    """Does the job fit with this change alone?"""
    reason: str
    """Why it cannot be made; empty if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What would fit if more were allowed, where nothing that is allowed does."""

    allow: tuple[Group, ...]
    """What ``--allow`` would have to name besides."""
    evaluated: Evaluated
    """The configuration, traced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendProof:
    """What is proved of all ways, traced or not. Ways that were not traced are known by bounds."""

    ending: Ending
    """``best``: no way is better. ``best_of_proved``: one that was not proved might be. ``nothing_fits``: no way fits.
    ``not_found``: one that was not proved might fit."""
    ways: int
    """Ways to run the job that may be taken. A checkpoint plan is one more, made in the place of the best."""
    proved: int
    """Those that were traced, cannot be, or are known by a bound to fit in no case, or to be no better."""
    gap: float | None
    """Share by which the best might cost more than the best of all; None where nothing fits, or nobody knows."""
    least_bytes: Bytes | None
    """Where nothing fits: no way has a lower device peak; None otherwise."""
    is_least_reached: bool
    """Has one that was traced that very peak?"""
    least_changes: int | None
    """No way with fewer changes fits; None where no way is left that may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The answer. Every row was confirmed by its own trace."""

    target: str
    """The target as typed."""
    gpu: str
    """Profile."""
    gpu_title: str
    """The vendor's name for it."""
    gpus: int
    """How many."""
    usable_bytes: Bytes
    """What one of them has for a process."""
    limit_bytes: Bytes
    """What a configuration may take of it."""
    thresholds: UtilizationThresholds | None
    """The preset's shares of the usable bytes, where one was chosen."""
    global_batch: int
    """Samples per optimizer step, over all ranks; the same in every row."""
    baseline: Evaluated | None
    """The job as given; None where it cannot be traced."""
    rows: tuple[Evaluated, ...]
    """What fits, the cheapest first; empty where nothing does."""
    pareto: tuple[Evaluated, ...]
    """Of all that was traced: what no other beats in both memory and throughput, least memory first."""
    what_ifs: tuple[SingleChange, ...]
    """Single changes, the most saved bytes first."""
    rejected: tuple[Rejected, ...]
    """What lost, and why."""
    cheapest: SingleChange | None
    """Where the job does not fit as given: of what makes it fit, the fewest changes, then the least time; numerics kept
    if that goes."""
    remedies: tuple[Remedy, ...]
    """Where nothing that is allowed fits: what would, the least intrusive first."""
    untraced: Candidate | None
    """Where nothing was found in the budget: what would have been traced next, whose size is a guess."""
    critical: CriticalBatch | None
    """What the global batch costs in steps and samples, where the noise scale is known."""
    ended: Literal["complete", "budget"]
    """Is every way proved, or did time or traces run out?"""
    proof: RecommendProof
    """What is proved of all ways."""
    interrupted: bool
    """Did the user end the search?"""
    candidates: int
    """Ways to run the job that were considered."""
    traces: int
    """Those that were traced."""
    seconds: float
    """Wall time."""
    assumptions: tuple[str, ...]
    """What was taken for granted, each a sentence."""
    not_modelled: tuple[str, ...]
    """What the figures leave out, each a phrase."""
    options: Mapping[str, str]
    """The job as given, field → text, as ``Estimate.options``."""
    provenance: Mapping[str, str]
    """Where each field came from, as ``Estimate.provenance``."""
    parameters: int
    """Of the model."""
    trainable_parameters: int
    """Those that learn."""
    torch_version: str
    memplan_version: str

    @property
    def counted(self) -> Literal["samples", "batches"]:
        """What batches are counted in."""
        return self.baseline.candidate.counted if self.baseline else "samples"

    @property
    def best(self) -> Evaluated | None:
        """The recommended configuration; None where nothing fits."""
        return self.rows[0] if self.rows else None
