"""The metrics: their names in Prometheus, what they mean, and where they come from.

Base units and suffixes as prometheus.io/docs/practices/naming has them; a metric that nobody can tell is left out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from memplan.runtime.meters.records import DeviceReading
from memplan.runtime.monitor.records import Check, Health, RunPlan, Trend

Of = TypeVar("Of")
"""What a metric is of."""


class DeviceRow(NamedTuple):
    """One device of a check."""

    read: DeviceReading
    """What was read."""
    health: Health
    """What it means."""
    plan: RunPlan | None
    """What was predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(Generic[Of]):
    """One name."""

    name: str
    """In Prometheus; of a counter without ``_total``."""
    help: str
    """What it is."""
    value: Callable[[Of], float | None]
    """What it is now; None: nobody can tell."""
    kind: Literal["gauge", "counter"] = "gauge"
    """Counters only grow while a process lives."""


def _planned(figure: Callable[[RunPlan], int]) -> Callable[[DeviceRow], int | None]:
    return lambda of: None if of.plan is None else figure(of.plan)


def _trend(figure: Callable[[Trend], float | None]) -> Callable[[DeviceRow], float | None]:
    return lambda of: None if of.health.trend is None else figure(of.health.trend)


DEVICE: tuple[Metric[DeviceRow], ...] = (
    Metric(
        name="memplan_gpu_memory_used_bytes",
        help="Memory of the device that all processes together use; of the host, where training is on the CPU.",
        value=lambda of: of.read.used,
    ),
    Metric(
        name="memplan_gpu_memory_total_bytes",
        help="All memory of the device.",
        value=lambda of: of.read.total,
    ),
    Metric(
        name="memplan_torch_allocated_bytes",
        help="Bytes in live blocks of PyTorch's allocator.",
        value=lambda of: of.read.allocated,
    ),
    Metric(
        name="memplan_torch_requested_bytes",
        help="Bytes that were asked for, of these blocks.",
        value=lambda of: of.read.requested,
    ),
    Metric(
        name="memplan_torch_reserved_bytes",
        help="Bytes in segments of PyTorch's allocator.",
        value=lambda of: of.read.reserved,
    ),
    Metric(
        name="memplan_torch_inactive_split_bytes",
        help="Free bytes in segments that are partly in use.",
        value=lambda of: of.read.inactive,
    ),
    Metric(
        name="memplan_torch_peak_allocated_bytes",
        help="Most bytes that ever were in live blocks.",
        value=lambda of: of.read.peak_allocated,
    ),
    Metric(
        name="memplan_torch_peak_reserved_bytes",
        help="Most bytes that ever were in segments.",
        value=lambda of: of.read.peak_reserved,
    ),
    Metric(
        name="memplan_alloc_retries",
        help="Times that the allocator gave its cache back to serve a request.",
        value=lambda of: of.read.retries,
        kind="counter",
    ),
    Metric(
        name="memplan_ooms",
        help="Times that the allocator could not serve a request.",
        value=lambda of: of.read.ooms,
        kind="counter",
    ),
    Metric(
        name="memplan_demand_bytes",
        help="Memory of the device that cannot be had otherwise.",
        value=lambda of: of.health.demand,
    ),
    Metric(
        name="memplan_limit_bytes",
        help="What the demand is held against.",
        value=lambda of: of.health.limit,
    ),
    Metric(
        name="memplan_headroom_ratio",
        help="What is left of the limit, as a share of it; negative where more is asked for than there is.",
        value=lambda of: of.health.headroom / of.health.limit if of.health.limit else None,
    ),
    Metric(
        name="memplan_fragmentation_ratio",
        help="Share of the reserved bytes that is stuck in segments partly in use.",
        value=lambda of: of.health.fragmentation,
    ),
    Metric(
        name="memplan_predicted_peak_bytes",
        help="Predicted device peak, as nvidia-smi would show it.",
        value=_planned(lambda plan: plan.device),
    ),
    Metric(
        name="memplan_predicted_peak_low_bytes",
        help="Lower end of the interval around it.",
        value=_planned(lambda plan: plan.low),
    ),
    Metric(
        name="memplan_predicted_peak_high_bytes",
        help="Upper end of the interval around it.",
        value=_planned(lambda plan: plan.high),
    ),
    Metric(
        name="memplan_drift_bytes",
        help="Most measured beyond the upper end of the prediction of the same figure; negative below it.",
        value=lambda of: of.health.drift,
    ),
    Metric(
        name="memplan_growing",
        help="1 while allocated memory grows from step to step beyond noise.",
        value=_trend(lambda trend: trend.growing),
    ),
)
"""For every device."""

COMPARED: tuple[Metric[DeviceRow], ...] = (
    Metric(
        name="memplan_compared_bytes",
        help="The most so far of the figure that is compared with the plan.",
        value=lambda of: of.health.measured,
    ),
    Metric(
        name="memplan_compared_predicted_bytes",
        help="The plan's peak of that figure.",
        value=lambda of: of.health.predicted,
    ),
    Metric(
        name="memplan_compared_predicted_high_bytes",
        help="Upper end of the plan's interval for it.",
        value=lambda of: of.health.predicted_high,
    ),
)
"""For every device, with ``figure``: which one is compared (``reserved``, ``allocated`` or ``used``)."""

TREND: tuple[Metric[DeviceRow], ...] = (
    Metric(
        name="memplan_growth_bytes",
        help="Bytes that allocated memory grows by, per step or second.",
        value=_trend(lambda trend: trend.per_step),
    ),
    Metric(
        name="memplan_until_full",
        help="Steps, or seconds, until the device is full at this pace.",
        value=_trend(lambda trend: trend.until_full),
    ),
)
"""For every device, with ``per``: ``step``, or ``second`` where steps are not counted."""

JOB: tuple[Metric[Check], ...] = (
    Metric(
        name="memplan_host_memory_available_bytes",
        help="Host memory that may still be taken, within the container's limit.",
        value=lambda of: of.reading.host.available,
    ),
    Metric(
        name="memplan_host_memory_total_bytes",
        help="All host memory, within the container's limit.",
        value=lambda of: of.reading.host.total,
    ),
    Metric(
        name="memplan_host_swap_used_bytes",
        help="Swap space in use.",
        value=lambda of: of.reading.host.swap_used,
    ),
    Metric(
        name="memplan_process_resident_bytes",
        help="Resident memory of the training process.",
        value=lambda of: of.reading.host.resident,
    ),
    Metric(
        name="memplan_step",
        help="Optimizer step of the last check.",
        value=lambda of: of.step,
    ),
    Metric(
        name="memplan_checks",
        help="Checks so far.",
        value=lambda of: of.number + 1,
        kind="counter",
    ),
    Metric(
        name="memplan_last_check_timestamp_seconds",
        help="When the last check was, since the epoch.",
        value=lambda of: of.reading.seconds,
    ),
)
"""For the job."""
