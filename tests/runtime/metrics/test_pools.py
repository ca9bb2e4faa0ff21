"""Pools' accounts as Prometheus meets them."""

import gc
from typing import Any

import pytest
import torch
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from memplan.runtime.metrics.exporter import Exporter, start
from memplan.runtime.pools.pool import TensorPool
from memplan.runtime.pools.records import PoolStatistics
from memplan.units import MIB
from tests.runtime.metrics.scraping import OPENMETRICS, samples, scraped


def used() -> TensorPool:
    """A pool with something in every account."""
    pool = TensorPool()
    pool.take(5 * MIB + 1, torch.uint8).give_back()
    for _ in range(3):
        pool.take(100, torch.uint8).give_back()
    pool.take(3 * MIB, torch.uint8)
    gc.collect()
    return pool


def accounts(exporter: Exporter, accept: str = "text/plain") -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return samples(scraped(exporter, accept), openmetrics if accept == OPENMETRICS else plain)


@pytest.mark.parametrize("accept", ["text/plain", OPENMETRICS])
def test_accounts_of_each_pool_are_exported(accept: str) -> None:
    pools = {"replay": used(), "staging": TensorPool()}
    lease = pools["replay"].take(7 * MIB + 1, torch.uint8)
    exporter = start(lambda: None, port=0, job="run", pools=pools)
    try:
        found = accounts(exporter, accept)
    finally:
        exporter.close()
    for name, pool in pools.items():
        told, labels = pool.statistics(), frozenset({"pool": name, "job": "run"}.items())
        for account in ("in_use", "wasted", "pending", "cached", "held"):
            assert found[f"memplan_pool_{account}_bytes", labels] == getattr(told, f"{account}_bytes")
        for count in ("hits", "misses", "evictions", "compactions", "leaks"):
            assert found[f"memplan_pool_{count}_total", labels] == getattr(told, count)
        assert found["memplan_pool_take_seconds_count", labels] == told.takes
        assert found["memplan_pool_take_seconds_sum", labels] == pytest.approx(told.take_seconds.sum)
        assert buckets(found, name) == cumulative(told)
        for bucket in told.buckets:
            of_size = labels | {("bucket", str(bucket.upto_bytes))}
            assert found["memplan_pool_bucket_in_use_bytes", of_size] == bucket.in_use_bytes
            assert found["memplan_pool_bucket_wasted_bytes", of_size] == bucket.wasted_bytes
            assert found["memplan_pool_bucket_hits_total", of_size] == bucket.hits
    first = {key[0]: value for key, value in found.items() if ("pool", "replay") in key[1]}
    assert first["memplan_pool_in_use_bytes"] == 7 * MIB + 1
    assert (first["memplan_pool_hits_total"], first["memplan_pool_leaks_total"]) == (2, 1)
    lease.give_back()


def buckets(found: dict[Any, float], name: str) -> list[tuple[float, float]]:
    return sorted(
        (float(dict(labels)["le"]), value)
        for (metric, labels), value in found.items()
        if metric == "memplan_pool_take_seconds_bucket" and ("pool", name) in labels
    )


def cumulative(told: PoolStatistics) -> list[tuple[float, float]]:
    times = told.take_seconds
    bounds = (*times.bounds, float("inf"))
    return [(bound, sum(times.counts[: index + 1])) for index, bound in enumerate(bounds)]


def test_a_pool_that_fails_leaves_the_rest() -> None:
    class Broken:
        def statistics(self) -> PoolStatistics:
            raise ZeroDivisionError

    exporter = start(lambda: None, port=0, job="run", pools={"broken": Broken()})
    try:
        found = accounts(exporter)
    finally:
        exporter.close()
    assert found["memplan_scrape_errors_total", frozenset({("job", "run")})] == 1


def test_without_pools_nothing_is_said_of_them() -> None:
    exporter = start(lambda: None, port=0)
    try:
        assert "memplan_pool" not in scraped(exporter)
    finally:
        exporter.close()
