"""The largest batch in one process: trace, put together, search. Runs in the child: user code is executed."""

import time
from collections.abc import Iterator
from dataclasses import replace

from memplan.errors import UsageError
from memplan.findings.utilization import Utilization
from memplan.hardware.profile import GpuProfile
from memplan.job.program_arguments import at
from memplan.job.spec import JobSpec
from memplan.lifetime.build import build_lifetimes
from memplan.measure.answer import compose
from memplan.measure.measurer import Measurer
from memplan.measure.played import play_on_device
from memplan.measure.records import Verdict
from memplan.plan.batch.headroom import is_within, limit_of
from memplan.plan.batch.records import BatchAnswer, BatchPoint, BatchTurn, Variable
from memplan.plan.batch.search import JudgedStep, SearchEnd, ValueSearch
from memplan.tracing.records import Trace
from memplan.units import Bytes

FIRST_LENGTH = 256
"""Tokens of the first trace where lengths are searched: kernels' paddings are below."""
HALVES = 4
"""Points of the curve: the answer, half of it, and so on."""


def largest_here(
    spec: JobSpec,
    profile: GpuProfile,
    measurer: Measurer,
    *,
    variable: Variable = "batch_size",
    utilization: Utilization | None = None,
) -> BatchAnswer:
    """Find the largest batch size (or sequence length) that fits.

    Args:
        spec: The job; its own value is where the search begins.
        profile: The device.
        measurer: Traces; devices that share it share traces.
        variable: What is enlarged.
        utilization: Room to leave; None leaves what the interval needs.

    Raises:
        UsageError: The device has no limit, the job is a pipeline, or the target has no sequence length.
        EstimateError: User code fails, or an op has no answer.
    """
    started = time.perf_counter()
    limit = limit_of(profile, utilization)
    if not limit:
        raise UsageError(f"{profile.name} has no fixed amount of memory", hint="name a GPU")
    if spec.parallel.pipeline > 1:
        raise UsageError("of a pipeline only the first stage would be looked at", where="--parallel pp")

    def trace(value: int) -> Trace:
        with measurer.saying(f"{variable.replace('_', ' ')} {value}: "):
            return measurer.lifetimes(at(spec, variable, value), profile).trace

    def judge(value: int, traced: Trace) -> JudgedStep:
        answer = compose(at(spec, variable, value), profile, play_on_device(build_lifetimes(traced), profile))
        fits = is_within(answer, utilization)
        return JudgedStep(device_bytes=answer.peak.device_bytes, fits=fits, verdict=answer.verdict)

    first = (spec.seq_len or FIRST_LENGTH) if variable == "seq_len" else spec.batch_size
    search = ValueSearch(trace, judge, limit)
    found = search.run(first)
    points = tuple(_curve(search, found))
    turns = tuple(_turns(search, found, profile.usable_bytes))
    return replace(answer_of(found, variable, limit, time.perf_counter() - started), curve=points, turns=turns)


def _turns(search: ValueSearch, found: SearchEnd, usable: int) -> Iterator[BatchTurn]:
    """Where the verdict of larger values turns; one value may turn it at once."""
    if found.beyond is None or found.ended not in ("exact", "confirmed"):
        return
    seen = set()
    for verdicts in ((Verdict.TIGHT, Verdict.OOM), (Verdict.OOM,)):
        value = search.first_beyond(found.value, usable, verdicts)
        if value is None or value in seen:
            continue
        seen.add(value)
        judged = search.at(value)
        peak = Bytes(judged.device_bytes)
        yield BatchTurn(value=value, verdict=judged.verdict, device_bytes=peak, traced=search.is_traced(value))


def _curve(search: ValueSearch, found: SearchEnd) -> Iterator[BatchPoint]:
    """The answer and one more, halves below it, and all that was traced between."""
    halves = {found.value >> times for times in range(HALVES)} - {0}
    near = {value for value in found.judged if value <= found.value + 1}
    for value in sorted(each for each in halves | near | {found.value + 1} if search.is_known(each)):
        judged, traced = search.at(value), search.is_traced(value)
        yield BatchPoint(value=value, device_bytes=Bytes(judged.device_bytes), fits=judged.fits, traced=traced)


def answer_of(found: SearchEnd, variable: Variable, limit: int, seconds: float) -> BatchAnswer:
    """The record of a search."""
    known = found.judged[found.value or min(found.judged)]
    return BatchAnswer(
        variable=variable,
        value=found.value,
        device_bytes=Bytes(known.device_bytes),
        next_device_bytes=None if found.beyond is None else Bytes(found.beyond.device_bytes),
        limit_bytes=Bytes(limit),
        ended=found.ended,
        refused=found.refused,
        traced=tuple(found.traces),
        differing=found.differing,
        seconds=seconds,
    )
