"""Metrics as a server of Prometheus gets them."""

import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families as plain

from memplan.runtime.metrics.exporter import Exporter

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def scraped(exporter: Exporter, accept: str = "text/plain", path: str = "/metrics") -> str:
    request = urllib.request.Request(f"http://{exporter.address}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode("utf-8")


def samples(text: str, parse: Any = plain) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Name and labels → value; every series once."""
    found = [sample for family in parse(text) for sample in family.samples]
    keyed = {(each.name, frozenset(item for item in each.labels.items() if item[1])): each.value for each in found}
    assert len(keyed) == len(found)
    return keyed


def of(found: dict[Any, float], name: str, **labels: str) -> float | None:
    return found.get((name, frozenset({"job": "run", **labels}.items())))
