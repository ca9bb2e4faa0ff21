"""One candidate: traced, replayed and timed. Runs in a worker process: user code is executed."""

import atexit
import multiprocessing
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from memplan.errors import EstimateError, MemplanError
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.job.usercode import user_code
from memplan.lifetime.roofline import computing_precision
from memplan.measure.answer import compose
from memplan.measure.collector import collector_off
from memplan.measure.kept_traces import KeptTraces, kept_traces
from memplan.measure.measured import Measured
from memplan.measure.measurer import measuring
from memplan.measure.over import over
from memplan.measure.records import Estimate
from memplan.plan.batch.headroom import is_within, limit_of
from memplan.plan.recommend.floors import MemoryFloor, floor_of
from memplan.plan.recommend.phases import Peaks, has_experts, phase_peaks
from memplan.plan.recommend.programs import in_force
from memplan.plan.recommend.records import Candidate, Evaluated, StepLimits
from memplan.replay.host import host_peak
from memplan.timing.clock import step_time
from memplan.timing.rates import Rates, StepTime
from memplan.tracing.records import Trace
from memplan.tracing.turns import few_micro_batches
from memplan.units import Bytes, format_bytes

GIVES_BACK = "the allocator must give its cache back"
"""Why a step does not fit that fits otherwise: it would stall again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result of tracing one candidate: its figures, or why there are none."""

    candidate: Candidate
    """What was tried."""
    evaluated: Evaluated | None
    """Its figures; None where it cannot be traced."""
    reason: str
    """Why it cannot be."""
    error: MemplanError | None = None
    """The error that says so, where there was one."""
    is_lost: bool = False
    """Did its trace come to no end? Then nobody knows whether it can be."""
    assumptions: tuple[str, ...] = ()
    """Of its trace."""
    not_modelled: tuple[str, ...] = ()
    """Of its trace."""
    options: Mapping[str, str] = field(default_factory=dict)
    """What was traced, field → text."""
    provenance: Mapping[str, str] = field(default_factory=dict)
    """Where each of these came from."""
    parameters: int = 0
    """Of the model."""
    trainable_parameters: int = 0
    """Those that learn."""
    peaks: Peaks = field(default_factory=dict)
    """Of each phase of the step, on the worst rank."""
    floor: MemoryFloor = field(default_factory=MemoryFloor)
    """What other ways hold and compute no less of."""
    experts: bool = False
    """Has the model a mixture of experts?"""
    batch_statistics: bool = False
    """Does the model normalize by statistics of its micro-batch? Then a split of the batch changes what is computed."""


def work(candidate: Candidate, profile: GpuProfile, limits: StepLimits, *, folder: Path | None = None) -> Evaluation:
    """Evaluate a candidate in a worker: nothing that user code prints gets into memplan's own output.

    Args:
        candidate: The way to run the job.
        profile: The device.
        limits: What it may take.
        folder: Where traces are found and kept; None: nowhere.
    """
    os.dup2(2, 1)
    try:
        # What a library warns of, it would warn of in every trace.
        with warnings.catch_warnings(action="ignore"), collector_off():
            return evaluate_here(candidate, profile, limits, kept_traces(folder))
    finally:
        _end_before_hooks()


def _end_before_hooks() -> None:
    """Let this worker end before its exit hooks: user code's could hang, and Triton lists what it has not freed."""
    if multiprocessing.parent_process() is not None:
        atexit.register(os._exit, 0)


def evaluate_here(
    candidate: Candidate, profile: GpuProfile, limits: StepLimits, kept: KeptTraces | None = None
) -> Evaluation:
    """Evaluate a candidate in this process; one that cannot be traced is an outcome, not an error."""
    return attempt(candidate, partial(_evaluated, candidate, profile, limits, kept))


def attempt(candidate: Candidate, make: Callable[[], Evaluation]) -> Evaluation:
    """The outcome that is made, or why none was: one candidate on which a library fails is not the end of a search."""
    try:
        with user_code("the trace"):
            return make()
    except MemplanError as error:
        reason = error.what if error.where is None else f"{error.what} ({error.where})"
        return not_traced(candidate, reason, error)


def not_traced(candidate: Candidate, reason: str, error: MemplanError | None = None) -> Evaluation:
    """The outcome of what cannot be made."""
    return Evaluation(
        candidate=candidate,
        evaluated=None,
        reason=reason,
        error=error,
    )


def lost(candidate: Candidate, reason: str, hint: str) -> Evaluation:
    """The outcome of what came to no end: nobody knows whether it can be."""
    return replace(not_traced(candidate, reason, EstimateError(reason, hint=hint)), is_lost=True)


def _evaluated(candidate: Candidate, profile: GpuProfile, limits: StepLimits, kept: KeptTraces | None) -> Evaluation:
    worst = _worst_rank(few_micro_batches(in_force(candidate.spec)), profile, kept)
    estimate, host, time = worst.estimate, worst.host_bytes, worst.time
    reason = _reason(estimate, limits, profile, host_bytes=host, step_seconds=time.total)
    evaluated = Evaluated(
        candidate=candidate,
        device_bytes=Bytes(estimate.peak.device_bytes),
        high_bytes=Bytes(estimate.peak.high_bytes),
        allocated_bytes=Bytes(estimate.peak.allocated_bytes),
        reserved_bytes=Bytes(estimate.peak.reserved_bytes),
        host_bytes=Bytes(host),
        fits=not reason,
        reason=reason,
        time=time,
        cost=0.0,
        traced_micro_batches=candidate.spec.grad_accum - worst.left_out,
        stage_bytes=worst.stage_bytes,
    )
    return Evaluation(
        candidate=candidate,
        evaluated=evaluated,
        reason="",
        assumptions=estimate.assumptions,
        not_modelled=estimate.not_modelled,
        options=estimate.options,
        provenance=estimate.provenance,
        parameters=estimate.parameters,
        trainable_parameters=estimate.trainable_parameters,
        peaks=worst.peaks,
        floor=worst.floor,
        experts=worst.experts,
        batch_statistics=worst.batch_statistics,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranks:
    """The estimates of a job's ranks."""

    estimate: Estimate
    peaks: Peaks
    floor: MemoryFloor
    host_bytes: int
    time: StepTime
    experts: bool
    batch_statistics: bool
    left_out: int
    """Micro-batches of a step that were not traced."""
    stage_bytes: tuple[Bytes, ...] = ()


def _worst_rank(spec: JobSpec, profile: GpuProfile, kept: KeptTraces | None) -> _Ranks:
    """The estimate of the rank that needs most of the device; of any, most host bytes, the longest step, its traits."""
    with measuring(kept=kept) as measurer:
        ranks = [_of_rank(spec, profile, measured) for measured in measurer.ranks(spec, profile)]
    return replace(
        max(ranks, key=lambda rank: rank.estimate.peak.device_bytes),
        host_bytes=max(rank.host_bytes for rank in ranks),
        time=max((rank.time for rank in ranks), key=lambda time: time.total),
        experts=any(rank.experts for rank in ranks),
        batch_statistics=any(rank.batch_statistics for rank in ranks),
        stage_bytes=tuple(Bytes(rank.estimate.peak.device_bytes) for rank in ranks) if len(ranks) > 1 else (),
    )


def _of_rank(spec: JobSpec, profile: GpuProfile, measured: Measured) -> _Ranks:
    # What another way holds at least is proved by what this one holds however fast its device is.
    estimate, lifetimes = compose(spec, profile, measured), measured.traced
    return _Ranks(
        estimate=estimate,
        peaks=phase_peaks(lifetimes),
        floor=floor_of(lifetimes, Rates.of(profile, computing_precision(spec, lifetimes.trace))),
        host_bytes=host_peak(lifetimes.trace) + estimate.peak.data_pipeline_bytes,
        time=step_time(lifetimes.trace, spec, profile),
        experts=has_experts(lifetimes),
        batch_statistics=has_batch_statistics(lifetimes.trace),
        left_out=lifetimes.trace.turns[-1].further if spec.few_micro_batches and lifetimes.trace.turns else 0,
    )


def has_batch_statistics(trace: Trace) -> bool:
    """Does a step normalize by the mean of its micro-batch, as BatchNorm does in training?

    What evaluation does keeps no mean for backward: all that it writes beside its output is empty.
    """
    return any(
        any(trace.storages[each].nbytes for each in op.writes[1:])
        for op in trace.ops
        if "batch_norm" in op.name and op.phase == "forward"
    )


def _reason(
    estimate: Estimate, limits: StepLimits, profile: GpuProfile, *, host_bytes: int, step_seconds: float
) -> str:
    """Why a candidate is over a limit; empty if it is not."""
    if not is_within(estimate, limits.utilization):
        limit = limit_of(profile, limits.utilization)
        beyond = over(estimate.peak.device_bytes, estimate.peak.high_bytes, limit)
        return f"{beyond} the {format_bytes(limit)} for the step" if beyond else GIVES_BACK
    if limits.host_bytes is not None and host_bytes > limits.host_bytes:
        return f"{format_bytes(host_bytes - limits.host_bytes)} over the host memory of a rank"
    if limits.step_seconds is not None and step_seconds > limits.step_seconds:
        return f"{step_seconds:.2f} s a step, {limits.step_seconds:g} s allowed"
    return ""
