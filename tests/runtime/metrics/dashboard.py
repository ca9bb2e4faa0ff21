"""The example's dashboard, read."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.runtime.metrics.prometheus import EXAMPLES

DASHBOARD = EXAMPLES / "grafana" / "dashboard.json"


class Query(NamedTuple):
    """An expression of a panel, as Prometheus gets it when every run and GPU is chosen."""

    panel: str
    expression: str
    legend: str


def dashboard() -> dict[str, Any]:
    """The JSON."""
    return json.loads(DASHBOARD.read_text("utf-8"))


def queries(interval: str = "5s") -> Iterator[Query]:
    """All expressions with Grafana's variables filled in."""
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            filled = target["expr"].replace("$job", ".*").replace("$gpu", ".*").replace("$__rate_interval", interval)
            assert "$" not in filled, filled
            yield Query(panel["title"], filled, target["legendFormat"])
