"""From a row of the table to a family of ``prometheus_client``."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from memplan.runtime.metrics.table import Metric, Of

if TYPE_CHECKING:
    from prometheus_client import Metric as Family


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
