"""The metrics: their names in Prometheus, what they mean, and where they come from.

Base units and suffixes as prometheus.io/docs/practices/naming has them; a metric that nobody can tell is left out.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from memplan.contract.fields import attribute
from memplan.runtime.meters.records import DeviceReading
from memplan.runtime.monitor.records import Check, Health, RunPlan

if TYPE_CHECKING:
    from prometheus_client import Metric as Family


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


class Metric(NamedTuple, Generic[Of]):
    """One name."""

    name: str
    """In Prometheus; of a counter without ``_total``."""
    help: str
    """What it is."""
    value: Callable[[Of], float | None]
    """What it is now; None: nobody can tell."""
    kind: Literal["gauge", "counter"] = "gauge"
    """Counters only grow while a process lives."""


def metrics(
    of: type[Of], *rows: tuple[str, str, str], counters: Collection[str] = frozenset()
) -> tuple[Metric[Of], ...]:
    """Return the metrics of a record: name, path to the figure in it, and what it is, of each.

    Where any part of a path is None, nobody can tell.
    """
    return tuple(
        Metric(name, what, attribute(of, path).get, "counter" if path in counters else "gauge")
        for name, path, what in rows
    )


DEVICE = metrics(
    DeviceRow,
    (
        "memplan_gpu_memory_used_bytes",
        "read.used",
        "Memory of the device that all processes together use; of the host, where training is on the CPU.",
    ),
    ("memplan_gpu_memory_total_bytes", "read.total", "All memory of the device."),
    ("memplan_torch_allocated_bytes", "read.allocated", "Bytes in live blocks of PyTorch's allocator."),
    ("memplan_torch_requested_bytes", "read.requested", "Bytes that were asked for, of these blocks."),
    ("memplan_torch_reserved_bytes", "read.reserved", "Bytes in segments of PyTorch's allocator."),
    ("memplan_torch_inactive_split_bytes", "read.inactive", "Free bytes in segments that are partly in use."),
    ("memplan_torch_peak_allocated_bytes", "read.peak_allocated", "Most bytes that ever were in live blocks."),
    ("memplan_torch_peak_reserved_bytes", "read.peak_reserved", "Most bytes that ever were in segments."),
    ("memplan_alloc_retries", "read.retries", "Times that the allocator gave its cache back to serve a request."),
    ("memplan_ooms", "read.ooms", "Times that the allocator could not serve a request."),
    ("memplan_demand_bytes", "health.demand", "Memory of the device that cannot be had otherwise."),
    ("memplan_limit_bytes", "health.limit", "What the demand is held against."),
    (
        "memplan_headroom_ratio",
        "health.headroom_ratio",
        "What is left of the limit, as a share of it; negative where more is asked for than there is.",
    ),
    (
        "memplan_fragmentation_ratio",
        "health.fragmentation",
        "Share of the reserved bytes that is stuck in segments partly in use.",
    ),
    ("memplan_predicted_peak_bytes", "plan.device", "Predicted device peak, as nvidia-smi would show it."),
    ("memplan_predicted_peak_low_bytes", "plan.low", "Lower end of the interval around it."),
    ("memplan_predicted_peak_high_bytes", "plan.high", "Upper end of the interval around it."),
    (
        "memplan_drift_bytes",
        "health.drift",
        "Most measured beyond the upper end of the prediction of the same figure; negative below it.",
    ),
    ("memplan_growing", "health.trend.growing", "1 while allocated memory grows from step to step beyond noise."),
    counters={"read.retries", "read.ooms"},
)
"""For every device."""

COMPARED = metrics(
    DeviceRow,
    ("memplan_compared_bytes", "health.measured", "The most so far of the figure that is compared with the plan."),
    ("memplan_compared_predicted_bytes", "health.predicted", "The plan's peak of that figure."),
    ("memplan_compared_predicted_high_bytes", "health.predicted_high", "Upper end of the plan's interval for it."),
)
"""For every device, with ``figure``: which one is compared (``reserved``, ``allocated`` or ``used``)."""

TREND = metrics(
    DeviceRow,
    ("memplan_growth_bytes", "health.trend.per_step", "Bytes that allocated memory grows by, per step or second."),
    ("memplan_until_full", "health.trend.until_full", "Steps, or seconds, until the device is full at this pace."),
)
"""For every device, with ``per``: ``step``, or ``second`` where steps are not counted."""

JOB = metrics(
    Check,
    (
        "memplan_host_memory_available_bytes",
        "reading.host.available",
        "Host memory that may still be taken, within the container's limit.",
    ),
    ("memplan_host_memory_total_bytes", "reading.host.total", "All host memory, within the container's limit."),
    ("memplan_host_swap_used_bytes", "reading.host.swap_used", "Swap space in use."),
    ("memplan_process_resident_bytes", "reading.host.resident", "Resident memory of the training process."),
    ("memplan_step", "step", "Optimizer step of the last check."),
    ("memplan_checks", "checks", "Checks so far."),
    ("memplan_last_check_timestamp_seconds", "reading.seconds", "When the last check was, since the epoch."),
    counters={"checks"},
)
"""For the job."""


def utf8(text: str) -> str:
    """Text that can be written as UTF-8, whatever bytes a path or an argument had."""
    return text.encode("utf-8", "replace").decode("utf-8")


def family_of(metric: Metric[Of], labels: Sequence[str]) -> Any:
    """A family without samples."""
    from prometheus_client import core

    kind = core.CounterMetricFamily if metric.kind == "counter" else core.GaugeMetricFamily
    return kind(metric.name, metric.help, labels=labels)


def filled(
    metrics: Iterable[Metric[Of]], labels: Sequence[str], rows: Iterable[tuple[tuple[str, ...], Of]]
) -> "Iterator[Family]":
    """A family for each metric, with a sample for each row of which it can be told."""
    rows = list(rows)
    for metric in metrics:
        family = family_of(metric, labels)
        for values, of in rows:
            value = metric.value(of)
            if value is not None:
                family.add_metric(values, value)
        yield family
