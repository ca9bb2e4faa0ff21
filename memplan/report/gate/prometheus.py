"""Prometheus' text format, for a file that node_exporter's textfile collector reads.

The collector takes neither timestamps nor one series twice (github.com/prometheus/node_exporter, README, "Textfile
Collector"). Base units and suffixes as prometheus.io/docs/practices/naming has them.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from memplan.gate.compare import with_figures
from memplan.gate.records import GateResult, Row
from memplan.measure.records import Estimate
from memplan.report.gate.findings import limit_bytes, versions
from memplan.text import clean


class Gauge(NamedTuple):
    """A gauge with a series for every job and GPU that has a value."""

    name: str
    """In Prometheus."""
    help: str
    """What it is."""
    value: Callable[[Row], float | None]
    """Of a row; None: it has none."""


def _of(figure: Callable[[Estimate], float]) -> Callable[[Row], float | None]:
    def value(row: Row) -> float | None:
        estimate = with_figures(row.estimate)
        return None if estimate is None else figure(estimate)

    return value


def _headroom(row: Row, *, share: bool) -> float | None:
    estimate = with_figures(row.estimate)
    if estimate is None or not estimate.gpu.usable_bytes:  # A CPU has no limit.
        return None
    return estimate.headroom_bytes / estimate.gpu.usable_bytes if share else estimate.headroom_bytes


METRICS = (
    Gauge(
        "memplan_predicted_peak_bytes",
        "Predicted device peak, as nvidia-smi would show it.",
        _of(lambda estimate: estimate.peak.device_bytes),
    ),
    Gauge(
        "memplan_predicted_peak_low_bytes",
        "Lower end of the interval around it.",
        _of(lambda estimate: estimate.peak.low_bytes),
    ),
    Gauge(
        "memplan_predicted_peak_high_bytes",
        "Upper end of the interval around it.",
        _of(lambda estimate: estimate.peak.high_bytes),
    ),
    Gauge(
        "memplan_limit_bytes",
        "What the peak is held against: the least limit of the policy or what the GPU has.",
        limit_bytes,
    ),
    Gauge(
        "memplan_headroom_bytes",
        "Usable memory of the GPU less the predicted peak.",
        lambda row: _headroom(row, share=False),
    ),
    Gauge("memplan_headroom_ratio", "The same as a share of usable memory.", lambda row: _headroom(row, share=True)),
    Gauge("memplan_gate_failed", "1 where the policy is not met.", lambda row: int(row.outcome == "failed")),
    Gauge(
        "memplan_gate_unknown",
        "1 where there is no trustworthy figure.",
        lambda row: int(with_figures(row.estimate) is None),
    ),
)


def render(result: GateResult) -> str:
    """The metrics, each with its help and type."""
    rows = {(clean(row.job), clean(row.gpu)): row for row in result.rows}
    lines = []
    for metric in METRICS:
        values = {key: metric.value(row) for key, row in rows.items()}
        lines += _head(metric.name, metric.help)
        lines += [
            f"{metric.name}{_labels({'job': job, 'gpu': gpu})} {value}"
            for (job, gpu), value in values.items()
            if value is not None
        ]
    lines += [*_head("memplan_gate_seconds", "Wall time of the gate."), f"memplan_gate_seconds {result.seconds}"]
    lines += _head("memplan_build_info", "1; the labels say what made the figures.")
    lines.append(f"memplan_build_info{_labels({'version': '', 'torch': '', **_build(result)})} 1")
    return "\n".join(lines) + "\n"


def _build(result: GateResult) -> dict[str, str]:
    made = versions(result)
    return {"version": made["memplan"], "torch": made["torch"]} if made else {}


def _head(name: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} gauge"]


def _labels(labels: Mapping[str, str]) -> str:
    """Values with the format's own escapes; line breaks are gone already."""
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"') for value in labels.values())
    return "{" + ",".join(f'{key}="{value}"' for key, value in zip(labels, escaped, strict=True)) + "}"
