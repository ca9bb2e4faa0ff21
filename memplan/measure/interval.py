"""The interval around the device peak, and what it rests on.

Five parts make it: how far measured runs of this class of workload were from their predictions (``residuals.toml``,
written by ``benchmarks/interval_coverage.py`` from committed measurements), the range of contexts measured on such
cards, the work space whose size only closed libraries know, with several CUDA streams what the order of allocations
leaves open, and where data decide what the step does, what it would take if they decided otherwise. An approximation of
ZeRO without DeepSpeed is widened by as much as such figures were off from DeepSpeed's trace.
"""

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Final

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.job.zero import APPROXIMATE
from memplan.measure.measured import Measured
from memplan.measure.records import Band, IntervalBasis
from memplan.replay.records import MemoryProfile
from memplan.tracing.records import Trace
from memplan.versions import at_least

POOLED: Final = "pooled"
"""The entry of all whole runs on GPUs together, for classes of which too few were measured."""
FIGURES: Final = ("reserved", "allocated")
"""Figures of the caching allocator that were measured, the one nearer to device bytes first."""
_OF_CUDNN: Final = frozenset({
    "convolution", "convolution_backward", "cudnn_convolution", "cudnn_convolution_transpose", "_cudnn_rnn",
    "_cudnn_rnn_backward",
})  # fmt: skip
"""Operators whose work space cuDNN alone knows."""
NARROWEST_FLOAT_BYTES: Final = 2
"""Bytes of a weight in half precision: fewer on average only where weights are quantised."""
ZERO_APPROXIMATION: Final = (0.79, 1.14)
"""DeepSpeed's traced peaks over those of ``tracing/sharding/zero/approximate.py``, the least and the most of allocated
and reserved bytes of 18 jobs (``benchmarks/sharding_zero.py --approximation``, DeepSpeed 0.19.8, torch 2.13,
2026-11-23)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """Measured over predicted peaks of one class of workload."""

    runs: int
    """Measured runs."""
    sources: int
    """Who measured them."""
    low: float | None = None
    """Lower end of measured / predicted; None where the runs are too few for the level."""
    high: float | None = None
    """Upper end."""
    torch: str = ""
    """The oldest torch that any of the runs had; empty where not all sources say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualTable:
    """What was measured of every class."""

    level: float
    """Share of runs that the ends of a class should hold between them."""
    entries: Mapping[tuple[str, str], Residuals]
    """(class, figure) → residuals."""

    def basis(self, workload: str) -> IntervalBasis:
        """What an interval for a class of jobs (``classify``) rests on: its own ends, else those of all, if any.

        Ends hold both figures, for what a trace lacks is not reserved, either. A class without ends of reserved bytes
        has those of all runs besides.
        """
        # Runs on GPUs say nothing of the CPU, whose step and allocator are others.
        # A class whose runs are not pooled for others may have a pool of its own, with them in it.
        places = (workload,) if workload == "cpu" else (workload, f"{POOLED}-{workload}", POOLED)
        own = max((entry.runs for (name, _), entry in self.entries.items() if name == workload), default=0)
        earned = {place: self._with_ends(place) for place in places}
        place = next((place for place in places if earned[place]), "")
        if not place:
            return IntervalBasis(workload=workload, own_runs=own)
        found = dict(earned[place])
        found |= next(({"reserved": each["reserved"]} for each in earned.values() if "reserved" in each), {})
        largest = max(earned[place].values(), key=lambda entry: entry.runs)
        return IntervalBasis(
            level=self.level if place == workload else None,
            workload=workload,
            runs=largest.runs,
            sources=largest.sources,
            own_runs=own,
            figure=next(figure for figure in FIGURES if figure in found),
            low_ratio=min(entry.low for entry in found.values() if entry.low is not None),
            high_ratio=max(entry.high for entry in found.values() if entry.high is not None),
        )

    def _with_ends(self, place: str) -> Mapping[str, Residuals]:
        """Figure → residuals of a class or pool, where they have ends."""
        entries = {figure: self.entries.get((place, figure)) for figure in FIGURES}
        return {figure: entry for figure, entry in entries.items() if entry and entry.low is not None}

    def of_another_age(self, basis: IntervalBasis, torch: str) -> tuple[str, ...]:
        """Say that a release of torch is older than any whose runs an interval rests on, where all are known."""
        oldest = [entry.torch for entry in self._with_ends(basis.workload).values()]
        if basis.level is None or not all(oldest) or any(at_least(torch, each) for each in oldest):
            return ()
        return (f"how torch {torch} differs: runs behind the interval had {oldest[0]} or a newer one",)


@cache
def shipped_residuals() -> ResidualTable:
    """The table that memplan ships."""
    return read_residuals((files("memplan.measure") / "residuals.toml").read_text("utf-8"))


def read_residuals(text: str) -> ResidualTable:
    """A table from its TOML."""
    content = tomllib.loads(text)
    entries = {
        (workload, figure): Residuals(**fields)
        for workload, figures in content["classes"].items()
        for figure, fields in figures.items()
    }
    return ResidualTable(level=content["level"], entries=entries)


def classify(spec: JobSpec, profile: GpuProfile, measured: Measured) -> str:
    """The class of workload that a job belongs to, for its residuals.

    Returns:
        ``cpu`` and ``rocm`` by the device; ``sharded`` and ``compiled`` by the options; ``cnn`` where cuDNN's choice of
        kernels moves the peak; ``inference``; ``qlora`` and ``lora`` where most weights are frozen, quantised or not;
        ``checkpointed``; else ``full``.
    """
    trace = measured.lifetimes.trace
    if profile.kind != "cuda":
        return profile.kind
    if spec.parallel.ranks > 1 or spec.compile != "eager":
        return "sharded" if spec.parallel.ranks > 1 else "compiled"
    if _cudnn_moves(measured):
        return "cnn"
    if spec.mode != "train":
        return "inference"
    if 2 * trace.model.trainable_parameters < trace.model.parameters:
        return "qlora" if _quantised(trace) else "lora"
    return "full" if spec.checkpoint == "none" else "checkpointed"


def least_high(profile: GpuProfile, spec: JobSpec, device_bytes: int) -> int:
    """Upper end of the interval of a job that takes so many device bytes at least, whatever its class proves to be."""
    ratios = (shipped_residuals().basis(each).high_ratio for each in _possible(spec, profile))
    allocated = max(0, device_bytes - profile.context_bytes)
    stretched = math.ceil(allocated * min(ratios)) + (profile.context_high_bytes or profile.context_bytes)
    return max(device_bytes, stretched) if allocated else device_bytes


def _possible(spec: JobSpec, profile: GpuProfile) -> tuple[str, ...]:
    """Classes that ``classify`` may find for a job, by its options alone."""
    if profile.kind != "cuda":
        return (profile.kind,)
    if spec.parallel.ranks > 1 or spec.compile != "eager":
        return ("sharded",) if spec.parallel.ranks > 1 else ("compiled",)
    return ("cnn", "inference") if spec.mode != "train" else ("cnn", "qlora", "lora", "full", "checkpointed")


def _cudnn_moves(measured: Measured) -> bool:
    """Does what cuDNN's kernels take move the peak? Scratch of other kernels is known between bounds, too."""
    calls = any(op.name.split(".")[1] in _OF_CUDNN for op in measured.lifetimes.trace.ops if op.name.count(".") > 1)
    return calls and measured.least.peak_allocated != measured.most.peak_allocated


def _quantised(trace: Trace) -> bool:
    weights = sum(storage.nbytes for storage in trace.storages if storage.role == "parameter")
    return weights < NARROWEST_FLOAT_BYTES * trace.model.parameters


def interval(profile: GpuProfile, measured: Measured, basis: IntervalBasis) -> tuple[int, int]:
    """Ends of the interval around the device peak, in bytes; the prediction lies between them.

    The low end has the smallest context known for the card and no work space of unknown size; the high end has the
    largest, and of such work space the most. What a library can do without fills no more than the room that there is:
    cuDNN falls back on kernels that take less (aten/src/ATen/native/cudnn/Conv_v8.cpp ``try_configs``), so it makes no
    step fail.

    Args:
        profile: The device.
        measured: What came of the replays.
        basis: How far measured runs of such jobs were off. Unless they tell of reserved bytes, the low end has no
            fragmentation either: that the allocator wastes as much as its replay is then unproved.
    """
    return _of_all(measured, lambda each: _of_one(profile, each, basis))


def reserved_interval(profile: GpuProfile, measured: Measured, basis: IntervalBasis) -> Band:
    """Where the reserved peak is expected: the interval of a device that takes nothing itself. Arguments as above."""
    room = max(profile.usable_bytes - profile.context_bytes, 0)
    bare = replace(profile, usable_bytes=room, context_bytes=0, context_low_bytes=0, context_high_bytes=0)
    low, high = interval(bare, measured, basis)
    return Band(low_bytes=low, high_bytes=high)


def allocated_interval(profile: GpuProfile, measured: Measured, basis: IntervalBasis) -> Band:
    """Where the allocated peak is expected. Arguments as above."""
    room = max(profile.usable_bytes - profile.context_bytes, 0)

    def ends(each: Measured) -> tuple[int, int]:
        likely = each.allocated
        least, *highest = (one.peak_allocated - each.held_back for one in (each.least, each.needed, each.most))
        needed, most = (math.ceil(one * basis.high_ratio) for one in highest)
        low = math.floor(least * basis.low_ratio)
        return min(likely, low), max(likely, needed, min(most, room or most))

    low, high = _of_all(measured, ends)
    return Band(low_bytes=low, high_bytes=high)


def _of_all(measured: Measured, ends: Callable[[Measured], tuple[int, int]]) -> tuple[int, int]:
    """Ends that hold whatever the data are, and what an approximation of ZeRO may be off."""
    lows, highs = zip(*(ends(each) for each in (measured, *measured.otherwise)), strict=True)
    if APPROXIMATE not in measured.lifetimes.trace.assumptions:
        return min(lows), max(highs)
    return math.floor(min(lows) * ZERO_APPROXIMATION[0]), math.ceil(max(highs) * ZERO_APPROXIMATION[1])


def _of_one(profile: GpuProfile, measured: Measured, basis: IntervalBasis) -> tuple[int, int]:
    """Ends of the interval if the data are as they were taken to be."""
    likely, band = measured.memory.peak_reserved + profile.context_bytes, measured.jitter
    needed, most = (_upper(memory, profile, basis, band.above) for memory in (measured.needed, measured.most))
    low = min(likely, _lower(measured, profile, basis))
    # Steps that always add to the cache come to the device's end before the cache is given back.
    grown = profile.usable_bytes if measured.memory.growth else 0
    return low, max(likely, needed, min(most, profile.usable_bytes or most), grown)


def _lower(measured: Measured, profile: GpuProfile, basis: IntervalBasis) -> int:
    least = measured.least
    reserved, allocated = least.peak_reserved - measured.jitter.below, least.peak_allocated - measured.held_back
    known = reserved if basis.figure == "reserved" else allocated
    return math.floor(known * basis.low_ratio) + (profile.context_low_bytes or profile.context_bytes)


def _upper(memory: MemoryProfile, profile: GpuProfile, basis: IntervalBasis, above: int) -> int:
    stretched = math.ceil((memory.peak_reserved + above) * basis.high_ratio)
    return stretched + (profile.context_high_bytes or profile.context_bytes)
