"""The largest batch in one process: trace, put together, search. Runs in the child: user code is executed."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from memplan.errors import EstimateError, MemplanError, UsageError
from memplan.hardware.profile import GpuProfile
from memplan.job.load import load_source
from memplan.job.spec import JobSpec
from memplan.job.usercode import forgotten_modules
from memplan.lifetime.build import build_lifetimes
from memplan.measure.answer import compose
from memplan.measure.local import measure
from memplan.plan.batch.headroom import Utilization, is_within, limit_of
from memplan.plan.batch.records import BatchAnswer, BatchPoint, Variable
from memplan.plan.batch.search import Found, Judged, Search
from memplan.tracing.records import DeviceTraits, Trace
from memplan.tracing.run import trace_job
from memplan.units import Bytes

FIRST_LENGTH = 256
"""Tokens of the first trace where lengths are searched: kernels' paddings are below."""
HALVES = 4
"""Points of the curve: the answer, half of it, and so on."""

Traces = dict[tuple[DeviceTraits, int], Trace | MemplanError]
"""Kind of device and value → trace, or why the program refuses it."""


def largest_here(
    spec: JobSpec,
    profile: GpuProfile,
    *,
    variable: Variable = "batch_size",
    utilization: Utilization | None = None,
    limit_bytes: int | None = None,
    traces: Traces | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> BatchAnswer:
    """Find the largest batch size (or sequence length) that fits.

    Args:
        spec: The job; its own value is where the search begins.
        profile: The device.
        variable: What is enlarged.
        utilization: Room to leave; None leaves what the interval needs.
        limit_bytes: Device peak at most, instead.
        traces: Of the same job, made for other devices; those that are made are added.
        progress: Told what happens now.

    Raises:
        UsageError: The device has no limit, the job is a pipeline, or the target has no sequence length.
        EstimateError: User code fails, or an op has no answer.
    """
    started = time.perf_counter()
    limit = limit_bytes if limit_bytes is not None else limit_of(profile, utilization)
    if not limit:
        raise UsageError(f"{profile.name} has no fixed amount of memory", hint="name a GPU")
    if spec.parallel.pipeline > 1:
        raise UsageError("of a pipeline only the first stage would be looked at", where="--parallel pp")
    known = {} if traces is None else traces

    def trace(value: int) -> Trace:
        traits = DeviceTraits.of(profile)
        if (traits, value) not in known:
            changed = _at(spec, variable, value)
            words = f"{variable.replace('_', ' ')} {value}: "
            with forgotten_modules():
                known[traits, value] = _traced(changed, traits, lambda text: progress(words + text))
        found = known[traits, value]
        if isinstance(found, MemplanError):
            raise found
        return found

    def judge(value: int, traced: Trace) -> Judged:
        answer = compose(_at(spec, variable, value), profile, measure(build_lifetimes(traced), profile))
        within = is_within(answer, utilization) if limit_bytes is None else answer.peak.device_bytes <= limit_bytes
        return Judged(device_bytes=answer.peak.device_bytes, fits=within)

    first = (spec.seq_len or FIRST_LENGTH) if variable == "seq_len" else spec.batch_size
    search = Search(trace, judge, limit)
    found = search.run(first)
    points = tuple(_curve(search, found))
    return replace(answer_of(found, variable, limit, time.perf_counter() - started), curve=points)


def _curve(search: Search, found: Found) -> Iterator[BatchPoint]:
    """The answer and one more, halves below it, and all that was traced between."""
    halves = {found.value >> times for times in range(HALVES)} - {0}
    near = {value for value in found.judged if value <= found.value + 1}
    for value in sorted(each for each in halves | near | {found.value + 1} if search.is_known(each)):
        judged, traced = search.at(value), search.is_traced(value)
        yield BatchPoint(value=value, device_bytes=Bytes(judged.device_bytes), fits=judged.fits, traced=traced)


def answer_of(found: Found, variable: Variable, limit: int, seconds: float) -> BatchAnswer:
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


def _traced(spec: JobSpec, traits: DeviceTraits, progress: Callable[[str], None]) -> Trace | MemplanError:
    try:
        return trace_job(partial(load_source, spec), spec, traits, progress=progress)
    except (EstimateError, UsageError) as error:
        return error


def _at(spec: JobSpec, variable: Variable, value: int) -> JobSpec:
    return replace(spec, batch_size=value) if variable == "batch_size" else replace(spec, seq_len=value)
