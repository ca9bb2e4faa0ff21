"""What a simulation is asked for and what comes of it: frozen records, torch-free and picklable."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from memplan.measure.records import GpuFacts
from memplan.replay.records import OutOfMemory
from memplan.simulate.family import Families
from memplan.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What every policy plays: the same steps in the same order."""

    target: str
    """What was asked for, as typed."""
    families: Families
    """The streams of a step of any length."""
    lengths: tuple[int, ...]
    """Length of every step; 0 where there are no sequences."""
    assumptions: tuple[str, ...]
    """What was assumed on the way, each a sentence for the report."""
    not_modelled: tuple[str, ...]
    """What the figures leave out."""
    options: Mapping[str, str]
    """What the step was, field → value as text; empty for a snapshot."""
    traced_lengths: tuple[int, ...]
    """Lengths that were traced; empty for a snapshot."""
    seconds: float
    """Wall time of tracing, or of reading the snapshot."""
    alloc_conf: str = ""
    """Options of the allocator that the target has itself (``Trace.alloc_conf``)."""


class DeviceCalls(NamedTuple):
    """What an allocator asked of the device and did for the program; differences of two are a step's."""

    requests: int = 0
    """Allocations served."""
    allocations: int = 0
    """``cudaMalloc``."""
    frees: int = 0
    """``cudaFree``."""
    maps: int = 0
    """Units of physical memory created and mapped (``cuMemCreate``, ``cuMemMap``, ``cuMemSetAccess``)."""
    unmaps: int = 0
    """Units unmapped and released."""
    retries: int = 0
    """Times that the whole cache was given back to serve one request."""
    moved_bytes: int = 0
    """Live bytes copied by compaction."""

    def since(self, before: "DeviceCalls") -> "DeviceCalls":
        """What came after ``before``."""
        return DeviceCalls(*(now - then for now, then in zip(self, before, strict=True)))

    def plus(self, other: "DeviceCalls") -> "DeviceCalls":
        """Both together."""
        return DeviceCalls(*(one + two for one, two in zip(self, other, strict=True)))


class StepFigures(NamedTuple):
    """One step under one policy.

    *The step's peak* is the moment that ``MemoryProfile.peak_at`` describes.
    """

    length: int
    """Tokens per sample; 0 where there are no sequences."""
    peak_requested: int
    """Most bytes asked for and alive at once."""
    peak_allocated: int
    """Most bytes in live blocks at once."""
    peak_reserved: int
    """Most bytes held of the device at once."""
    requested_at_peak: int
    """Bytes asked for and alive at the step's peak."""
    allocated_at_peak: int
    """Bytes in live blocks at the step's peak."""
    end_reserved: int
    """Bytes held of the device when the step is over."""
    largest_free: int
    """Largest block that the allocator could hand out without the device's help, when the step is over."""
    calls: DeviceCalls
    """Asked of the device during the step."""

    @property
    def fragmentation(self) -> float:
        """Share of reserved bytes that nobody asked for, at the step's peak: external and internal together."""
        return 1 - self.requested_at_peak / self.peak_reserved if self.peak_reserved else 0.0

    @property
    def external_fragmentation(self) -> float:
        """Share of reserved bytes in no live block, at the step's peak."""
        return 1 - self.allocated_at_peak / self.peak_reserved if self.peak_reserved else 0.0

    @property
    def internal_fragmentation(self) -> float:
        """Share of bytes in live blocks that nobody asked for, at the step's peak."""
        return 1 - self.requested_at_peak / self.allocated_at_peak if self.allocated_at_peak else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRun:
    """One policy over all steps."""

    name: str
    """What the report calls it."""
    conf: str | None
    """Value of ``PYTORCH_CUDA_ALLOC_CONF`` that gives it; None where PyTorch has no such policy."""
    steps: tuple[StepFigures, ...]
    """Every step in order; those after ``settled_at`` repeat. Cut short where the device was full."""
    settled_at: int | None
    """Steps played until the allocator's state repeated; None if every step was played."""
    out_of_memory: OutOfMemory | None
    """The request that the device could not serve, if there was one; the figures then know no limit."""
    failed_step: int | None
    """Step, counted from 1, in which that happened."""
    limited: bool
    """Do the figures come from a replay under the device's limit, with cached memory given back?"""
    floor: Bytes | None
    """Static plan: the most bytes that its planned buffers need at once, which no placement can undercut."""
    notes: tuple[str, ...]
    """What to know of this policy, each a sentence."""
    seconds: float
    """Wall time of the simulation."""

    @property
    def peak_requested(self) -> int:
        """Most bytes asked for and alive at once, over all steps."""
        return max((step.peak_requested for step in self.steps), default=0)

    @property
    def peak_allocated(self) -> int:
        """Most bytes in live blocks at once, over all steps."""
        return max((step.peak_allocated for step in self.steps), default=0)

    @property
    def peak_reserved(self) -> int:
        """Most bytes held of the device at once, over all steps."""
        return max((step.peak_reserved for step in self.steps), default=0)

    @property
    def fragmentation(self) -> float:
        """Share of reserved bytes that nobody asked for, at the peak: external and internal together."""
        return self.fragmentation_until(len(self.steps))

    @property
    def external_fragmentation(self) -> float:
        """Share of reserved bytes in no live block, at the peak."""
        return _at_peak(self.steps).external_fragmentation if self.steps else 0.0

    @property
    def internal_fragmentation(self) -> float:
        """Share of bytes in live blocks that nobody asked for, at the peak."""
        return _at_peak(self.steps).internal_fragmentation if self.steps else 0.0

    @property
    def drift(self) -> int:
        """Bytes held of the device after the last step, less those after the first."""
        return self.steps[-1].end_reserved - self.steps[0].end_reserved if self.steps else 0

    @property
    def calls(self) -> DeviceCalls:
        """Asked of the device over all steps."""
        total = DeviceCalls()
        for step in self.steps:
            total = total.plus(step.calls)
        return total

    def fragmentation_until(self, step: int) -> float:
        """``fragmentation`` if the run had ended after so many steps."""
        return _at_peak(self.steps[:step]).fragmentation if step else 0.0


def _at_peak(steps: tuple[StepFigures, ...]) -> StepFigures:
    """The step of the peak: of those in which most is reserved, the first in which most is allocated then."""
    return max(steps, key=lambda step: (step.peak_reserved, step.allocated_at_peak))


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionRecommendation:
    """The allocator option to run with."""

    policy: str
    """Name of the policy."""
    conf: str
    """Value of ``PYTORCH_CUDA_ALLOC_CONF``; empty for PyTorch's defaults."""
    command: str
    """Line to copy into a shell."""
    reason: str
    """Why, in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """Policies side by side on the same steps: the source of every report."""

    workload: Workload
    """What was played."""
    gpu: GpuFacts | None
    """The device; None where a snapshot was simulated without one."""
    seed: int
    """Of the drawn lengths."""
    policies: tuple[PolicyRun, ...]
    """In the order in which they are shown."""
    recommendation: OptionRecommendation | None
    """None where every policy that PyTorch has runs out of memory."""
    passed_bytes: int
    """Most bytes that a step leaves for the next."""
    without_leftovers: PolicyRun | None
    """The recommended policy if each step freed at its end what it leaves; None where it leaves nothing."""
    microseconds: Mapping[str, float]
    """Policy → modelled time that its allocation costs over all steps (``memplan.simulate.recommend``)."""
    memplan_version: str
    """Of this program."""
