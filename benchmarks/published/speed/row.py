"""One published run, and how it is predicted."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from memplan.hardware.catalog import load_profile
from memplan.job.load import load_source
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.job.usercode import forgotten_modules
from memplan.lifetime.build import build_lifetimes
from memplan.measure.played import play_on_device
from memplan.timing.clock import step_time
from memplan.timing.rates import StepTime
from memplan.tracing.records import DeviceTraits
from memplan.tracing.run import trace_job


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One published run."""

    table: str
    """Where it stands: runs of one table ran on one machine with one code."""
    name: str
    """What it is there."""
    gpu: str
    """Profile."""
    card: dict[str, Any] = field(default_factory=dict)
    """Where the card differs from its profile."""
    spec: JobSpec
    """As near as options come to it."""
    change: Callable[[ModelSource, JobSpec], ModelSource] | None = None
    """What no option says."""
    gib: float | None = None
    """Published peak of a rank, where there is one."""
    tokens_per_second: float
    """Published throughput of a rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What came out."""

    tokens_per_second: float
    """Of a rank."""
    gib: float
    """Allocated."""
    time: StepTime
    """What the step is made of."""


def predict(row: Row) -> Prediction:
    """Trace the first rank's step, and clock it."""
    profile = replace(load_profile(row.gpu), **row.card)
    with forgotten_modules():
        trace = trace_job(partial(_source, row), row.spec, DeviceTraits.of(profile))
    time = step_time(trace, row.spec, profile)
    parallel = row.spec.parallel
    # Ranks that share a layer or a sequence share its tokens.
    tokens = row.spec.batch_size * (row.spec.seq_len or 1) * parallel.step_batches / parallel.tensor / parallel.context
    allocated = play_on_device(build_lifetimes(trace), profile).memory.peak_allocated
    return Prediction(tokens_per_second=tokens / time.total, gib=allocated / 2**30, time=time)


def _source(row: Row) -> ModelSource:
    source = load_source(row.spec)
    return row.change(source, row.spec) if row.change else source
