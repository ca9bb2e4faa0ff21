"""What a validation knows: the device at hand, peaks and allocation streams of both sides, and how they compare."""

from array import array  # noqa: TC003 - records of it are pickled, and hints of dataclasses are looked up
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from memplan.measure.records import Estimate
from memplan.units import Bytes

Part = Literal["setup", "forward", "backward", "optimizer"]
"""Where in a run an event falls; the phases of a trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """The device that a step is to run on, as its own driver describes it."""

    kind: Literal["cuda", "cpu"]
    """Type of device."""
    index: int
    """Which of several; 0 for the CPU."""
    name: str
    """As ``torch.cuda.get_device_name`` says it; the processor's name for the CPU."""
    total_bytes: Bytes
    """All of its memory."""
    free_bytes: Bytes
    """What is free of it now, this process's own CUDA context already taken."""
    host_free_bytes: Bytes
    """Host memory that a process may still take, where models are built."""
    capability: tuple[int, int] | None = None
    """Compute capability; None for the CPU."""
    sm_count: int = 0
    """Streaming multiprocessors."""
    threads_per_sm: int = 0
    """Resident threads per multiprocessor."""
    versions: Mapping[str, str]
    """``torch``, and where they exist ``cuda``, ``cudnn``, ``driver``."""


class Peaks(NamedTuple):
    """Peaks of one side in bytes; None where there is no such figure (the CPU has no caching allocator)."""

    requested: int | None
    """Asked for and alive at once."""
    allocated: int | None = None
    """In live blocks: ``torch.cuda.max_memory_allocated``."""
    reserved: int | None = None
    """In segments: ``torch.cuda.max_memory_reserved``."""
    device: int | None = None
    """Taken from the device, CUDA context included."""


class Cause(NamedTuple):
    """Why an event happened, as far as its side knows."""

    what: str
    """Operator, kernel, or role (``parameter``)."""
    where: str
    """Module path or tensor name (predicted), autograd node (real); may be empty."""
    source: str
    """``file:line`` of user code; may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationStream:
    """Allocations and frees in order, as columns: there may be a million."""

    sizes: "array[int]"
    """Requested bytes; negative for a free."""
    causes: "array[int]"
    """Each event's index in ``known``."""
    known: tuple[Cause, ...]
    """Distinct causes."""
    marks: tuple[int, ...]
    """Index of the first event of each step; what precedes the first is set-up."""
    phases: "array[int] | None" = None
    """Each event's index in ``PARTS``; only a prediction knows it."""

    def __len__(self) -> int:
        """Number of events."""
        return len(self.sizes)

    def peak(self) -> int:
        """Most bytes alive at once, counted from the first event."""
        live = most = 0
        for size in self.sizes:
            live += size
            most = max(most, live)
        return most


PARTS: tuple[Part, ...] = ("setup", "forward", "backward", "optimizer")
"""What ``AllocationStream.phases`` counts by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPrediction:
    """What memplan says of a job on the device at hand."""

    estimate: Estimate
    """The answer that ``memplan estimate`` would give."""
    stream: AllocationStream
    """The events that the run should show, of its first steps."""
    steps: int
    """Steps to run: as many as were asked for, or as the replay needed until nothing changed any more."""
    traced_steps: int
    """Steps that were traced; the rest repeats the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """What the device's allocator showed of a run."""

    peaks: Peaks
    """Its peaks."""
    stream: AllocationStream | None
    """Its events, perhaps of the first steps only; None where no history was recorded."""
    retries: int = 0
    """Times that the allocator gave its whole cache back to serve a request."""
    context_bytes: int | None = None
    """Device memory that the bare CUDA context took; None where it could not be seen."""
    notes: tuple[str, ...] = ()
    """What could not be measured, each a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealRun:
    """A real run."""

    measured: MeasuredRun
    """What its allocator showed."""
    steps: int
    """Steps run to their end."""
    seconds: float
    """Wall time of the steps."""
    out_of_memory: str = ""
    """The allocator's message, if the run ended for want of memory; peaks then cover what came before."""


class Named(NamedTuple):
    """One event of a difference, with its cause."""

    action: Literal["alloc", "free"]
    nbytes: int
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A place where the streams part: what was predicted there, and what came instead."""

    step: int
    """Counted from 1; 0 for set-up."""
    part: Part
    """The predicted phase there."""
    predicted: tuple[Named, ...]
    """Events that only the prediction has; the first few."""
    real: tuple[Named, ...]
    """Events that only the run has; the first few."""
    predicted_events: int
    """How many there are in all."""
    real_events: int
    """Likewise."""
    times: int
    """How often the streams part in this way: with the same operators on both sides. The place is the first of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How much of a part of the run is the same on both sides."""

    part: Part
    """Which part, over all steps."""
    predicted: int
    """Events predicted."""
    real: int
    """Events that came."""
    matched: int
    """Events that both have, in order and in size."""


class Tally(NamedTuple):
    """How often one cause stands among the differences."""

    side: Literal["predicted", "real"]
    """The side that has the events."""
    cause: Cause
    events: int
    nbytes: int
    """Sum of their sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Two streams side by side."""

    predicted: int
    """Events predicted, of the steps that both sides have."""
    real: int
    """Events that came."""
    matched: int
    """Events that both have, in order and in size."""
    shares: tuple[Share, ...]
    """The same by part of the run."""
    differences: tuple[Difference, ...]
    """The first of each kind, in order."""
    difference_count: int
    """How many places there are where the streams part, of all kinds."""
    tallies: tuple[Tally, ...]
    """Causes with most bytes in differences, largest first."""

    @property
    def share(self) -> float:
        """Matched events as a share of the longer stream; 1.0 for two empty ones."""
        return self.matched / max(self.predicted, self.real) if self.predicted or self.real else 1.0

    @property
    def is_exact(self) -> bool:
        """Are the streams identical event for event?"""
        return self.matched == self.predicted == self.real


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Predicted beside measured."""

    device: DeviceFacts
    """Where it ran."""
    profile_note: str
    """How the device's profile was found."""
    estimate: Estimate
    """The prediction's own report."""
    predicted: Peaks
    """Predicted peaks."""
    run: RealRun
    """The real run."""
    alignment: Alignment | None
    """The streams side by side; None where the run recorded none."""
