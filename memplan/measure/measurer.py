"""The only way from a job to memory: each rank and each way of its data traced once for each kind of device, replayed.

Runs in the child: user code is executed.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from memplan.errors import EstimateError, MemplanError, UsageError
from memplan.hardware.profile import GpuProfile
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.job.usercode import forgotten_modules
from memplan.lifetime.build import build_lifetimes
from memplan.lifetime.records import Lifetimes
from memplan.measure.collector import between_traces, collector_off
from memplan.measure.folded import folded_trace
from memplan.measure.kept_traces import KeptTraces
from memplan.measure.measured import Measured
from memplan.measure.played import play_idle, play_on_device
from memplan.measure.traits import traits_of
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.stream import freed_late
from memplan.tracing.heard import decide, is_small
from memplan.tracing.records import DeviceTraits, Trace, Way
from memplan.tracing.sharding.ranks import ranks_to_trace
from memplan.tracing.turns import every_turn, turns_repeat

if TYPE_CHECKING:
    from memplan.tracing.script.model_place import SeenModel

Load = Callable[[], ModelSource]
"""Loads a target."""
Tell = Callable[[str], None]
"""Told in a few words what happens now."""


def measure(
    spec: JobSpec,
    profile: GpuProfile,
    policy: AllocatorPolicy | None = None,
    *,
    load: Load | None = None,
    kept: KeptTraces | None = None,
    progress: Tell = lambda _: None,
) -> Measured:
    """Return the memory of a job on a device: of its rank that reserves most.

    Args:
        spec: The job.
        profile: The device.
        policy: Options of its allocator; None: the target's own, else PyTorch's.
        load: Loads the target; None loads what the job names.
        kept: Where traces are found and kept; None: nowhere. They have no graph.
        progress: Told what happens now.

    Raises:
        MemplanError: As for its stages.
    """
    with measuring(policy, load=load, kept=kept, progress=progress) as measurer:
        return measurer.measure(spec, profile)


@contextmanager
def measuring(
    policy: AllocatorPolicy | None = None,
    *,
    load: Load | None = None,
    kept: KeptTraces | None = None,
    progress: Tell = lambda _: None,
) -> "Iterator[Measurer]":
    """Measure several jobs, or one on several devices, and trace nothing twice. Arguments are those of ``measure``."""
    with collector_off():
        yield Measurer(policy, load, kept, progress)


class Measurer:
    """Measures jobs in this process; made by ``measuring``."""

    def __init__(
        self, policy: AllocatorPolicy | None, load: Load | None, kept: KeptTraces | None, progress: Tell
    ) -> None:
        self.progress = progress
        """Told in a few words what happens now."""
        self.ops = 0
        """Ops of all traces so far, made here or found."""
        # What is loaded by hand no cache knows.
        self._policy, self._load, self._kept = policy, load, kept if load is None else None
        self._traces = 0
        self._measured: dict[tuple[str, str], tuple[Measured, ...]] = {}
        self._known: dict[tuple[str, DeviceTraits, int, Way], Lifetimes | MemplanError] = {}

    def measure(self, spec: JobSpec, profile: GpuProfile) -> Measured:
        """Return the memory of the rank that reserves most."""
        return max(self.ranks(spec, profile), key=lambda measured: measured.memory.peak_reserved)

    def ranks(self, spec: JobSpec, profile: GpuProfile) -> tuple[Measured, ...]:
        """Return the memory of every rank that differs."""
        key = repr(spec), repr(profile)
        if key not in self._measured:
            ranks = ranks_to_trace(spec.parallel)
            self._measured[key] = tuple(self._rank(spec, profile, rank) for rank in ranks)
        return self._measured[key]

    @contextmanager
    def saying(self, before: str) -> Iterator[None]:
        """Put a text before whatever is told of the progress."""
        tell = self.progress
        self.progress = lambda text: tell(f"{before}{text}")
        try:
            yield
        finally:
            self.progress = tell

    def lifetimes(self, spec: JobSpec, profile: GpuProfile, *, rank: int = 0, way: Way = "likely") -> Lifetimes:
        """Return the trace of one rank, put in order, with all that runs in it.

        Args:
            spec: The job.
            profile: The device that it is traced for.
            rank: Which of several ranks.
            way: How what nobody knows of its data turns out.

        Raises:
            UsageError: The options do not fit the target.
            EstimateError: User code fails, or an op has no answer on fake tensors.
        """
        every = every_turn(spec)
        found = self._lifetimes(every, profile, rank, way)
        # Of a program only its trace says whether it has turns.
        return self._lifetimes(replace(every, no_fold=True), profile, rank, way) if found.trace.turns else found

    def _lifetimes(self, spec: JobSpec, profile: GpuProfile, rank: int, way: Way = "likely") -> Lifetimes:
        """The same; of turns around a ring that are alike, a few, which are as good where they are played."""
        key = repr(spec), traits_of(spec, profile), rank, way
        if key not in self._known:
            self._known[key] = self._traced(spec, profile, rank, way)
        known = self._known[key]
        if isinstance(known, MemplanError):
            raise known
        return known

    def _rank(self, spec: JobSpec, profile: GpuProfile, rank: int) -> Measured:
        lifetimes = self._lifetimes(spec, profile, rank)
        self.progress(f"replaying on {profile.name}")
        measured = play_on_device(lifetimes, profile, self._policy, rank=rank)
        return self._with_other_ways(spec, profile, measured)

    def _with_other_ways(self, spec: JobSpec, profile: GpuProfile, measured: Measured) -> Measured:
        """Add what the job takes where what nobody knows of its data turns out otherwise."""
        otherwise: list[Measured] = []
        after_epoch: Measured | None = None
        notes: list[str] = []
        for way in measured.lifetimes.trace.unsure:
            if way == "idle":
                otherwise.append(play_idle(measured, profile))
                continue
            try:
                lifetimes = self._lifetimes(spec, profile, measured.rank, way)
            except EstimateError as error:
                # Either the program cannot take that way, or memplan cannot follow it there: nobody knows which. What
                # follows an epoch is named in any case.
                if way != "later":
                    notes.append(f"another way that the program may go could not be traced: {_in_short(error)}")
                continue
            otherwise.append(play_on_device(lifetimes, profile, self._policy, rank=measured.rank))
            after_epoch = otherwise[-1] if way == "later" else after_epoch
        told = self._as_heard(spec, profile, measured, otherwise)
        return replace(told, after_epoch=after_epoch, notes=tuple(dict.fromkeys(notes)))

    def _as_heard(
        self, spec: JobSpec, profile: GpuProfile, measured: Measured, otherwise: Sequence[Measured]
    ) -> Measured:
        """The job as data would have it, where they decide and it is small enough to ask them; else the likely way."""
        likely = replace(measured, otherwise=tuple(otherwise))
        trace = measured.lifetimes.trace
        peaks = [(each.memory.peak_requested, each.memory.peak_reserved) for each in (measured, *otherwise)]
        largest = max(reserved for _, reserved in peaks)
        if self._load is not None or not decide(trace, *peaks) or not is_small(spec, trace, largest):
            return likely
        try:
            lifetimes = self._lifetimes(every_turn(spec), profile, measured.rank, "heard")
        except MemplanError:
            # Such as of a program that only a GPU runs.
            return likely
        heard = play_on_device(lifetimes, profile, self._policy, rank=measured.rank)
        return replace(heard, otherwise=(measured, *otherwise))

    def _traced(self, spec: JobSpec, profile: GpuProfile, rank: int, way: Way) -> Lifetimes | MemplanError:
        traits = traits_of(spec, profile)
        trace = self._kept.find(spec, traits, rank, way) if self._kept is not None else None
        if trace is None:
            if self._traces:
                between_traces()
            self._traces += 1
            try:
                trace_with = partial(trace_for, spec, profile, rank=rank, way=way, progress=self.progress)
                trace = trace_with(load=self._load) if self._load else _folded_or_whole(spec, trace_with)
            except (EstimateError, UsageError) as error:
                return error
            if not turns_repeat(trace) or (spec.few_micro_batches and not _repeats_late(trace)):
                every = every_turn(spec)
                # Turns of a program are none that the job speaks of.
                again = replace(spec, no_fold=True) if every == spec else every
                return self._traced(again, profile, rank, way)
            if self._kept is not None:
                self._kept.keep(spec, traits, rank, way, trace)
        self.ops += len(trace.ops)
        return build_lifetimes(trace)


def _repeats_late(trace: Trace) -> bool:
    """Do turns repeat as well where shared blocks come back late?"""
    late = freed_late(trace)
    return late is None or turns_repeat(late)


def _folded_or_whole(spec: JobSpec, trace_with: Callable[..., Trace]) -> Trace:
    """Continue the trace from shallower models where that holds; else trace the job as it is.

    Args:
        spec: The job.
        trace_with: Traces it as ``trace_for`` does, given ``load``.
    """
    folded = folded_trace(spec, lambda source: trace_with(load=lambda: source))
    return folded if isinstance(folded, Trace) else replace(trace_with(), folded=folded)


def trace_for(
    spec: JobSpec,
    profile: GpuProfile,
    *,
    rank: int = 0,
    way: Way = "likely",
    load: Load | None = None,
    seen: "SeenModel | None" = None,
    progress: Tell = lambda _: None,
) -> Trace:
    """Trace one rank of a job for a device.

    Args:
        spec: The job.
        profile: The device.
        rank: Which of several ranks.
        way: How what nobody knows of its data turns out.
        load: Loads the target; None loads what the job names.
        seen: Told which model is trained; None: nobody asks.
        progress: Told what happens now.

    Raises:
        UsageError: The options do not fit the target.
        EstimateError: User code fails, or an op has no answer on fake tensors.
    """
    # Torch is imported here: what was traced before needs none of it.
    from memplan.job.load import load_source
    from memplan.tracing.run import trace_job

    with forgotten_modules():
        return trace_job(
            load or partial(load_source, spec), spec, traits_of(spec, profile), rank=rank, way=way, seen=seen,
            progress=progress,
        )  # fmt: skip


def _in_short(error: EstimateError) -> str:
    first = error.what.partition("\n")[0]
    return f"{first} ({error.where})" if error.where else first
