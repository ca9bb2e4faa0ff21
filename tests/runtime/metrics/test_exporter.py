"""The exporter as Prometheus meets it: over HTTP, read by the client library's own parsers."""

import dataclasses
import math
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest, write_to_textfile
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from memplan.errors import UsageError
from memplan.runtime.metrics.collector import MOST_REGIONS, Collector
from memplan.runtime.metrics.exporter import export_metrics, start
from memplan.runtime.monitor.records import Check, Level, RegionUse
from tests.runtime.metrics.checks import GIB, PLAN, check, device, health
from tests.runtime.metrics.scraping import OPENMETRICS, of, samples, scraped

LAW = settings(max_examples=30, deadline=None)


def collected(
    check: Check | None, job: str = "run", **more: Any
) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Without HTTP."""
    registry = CollectorRegistry(auto_describe=True)
    registry.register(Collector(lambda: check, job=job, plan=more.get("plan", PLAN)))
    return samples(generate_latest(registry).decode())


CARD = {"gpu": "cuda:0", "gpu_uuid": "GPU-0000"}


@pytest.mark.parametrize("accept", ["text/plain", OPENMETRICS])
def test_metrics_are_the_figures_of_the_last_check(accept: str) -> None:
    exporter = start(lambda: check(3), port=0, job="run", plan=PLAN)
    try:
        found = samples(scraped(exporter, accept), openmetrics if accept == OPENMETRICS else plain)
    finally:
        exporter.close()
    expected = {
        "memplan_gpu_memory_used_bytes": 50 * GIB,
        "memplan_gpu_memory_total_bytes": 80 * GIB,
        "memplan_torch_reserved_bytes": 48 * GIB,
        "memplan_torch_allocated_bytes": 40 * GIB,
        "memplan_torch_requested_bytes": 39 * GIB,
        "memplan_torch_inactive_split_bytes": 6 * GIB,
        "memplan_torch_peak_allocated_bytes": 45 * GIB,
        "memplan_torch_peak_reserved_bytes": 48 * GIB,
        "memplan_predicted_peak_bytes": 53 * GIB,
        "memplan_predicted_peak_low_bytes": 52 * GIB,
        "memplan_predicted_peak_high_bytes": 55 * GIB,
        "memplan_headroom_ratio": 0.25,
        "memplan_fragmentation_ratio": 0.125,
        "memplan_drift_bytes": -6 * GIB,
        "memplan_growing": 1,
        "memplan_ooms_total": 1,
        "memplan_alloc_retries_total": 2,
    }
    assert {name: of(found, name, **CARD) for name in expected} == expected
    assert of(found, "memplan_compared_bytes", **CARD, figure="reserved") == 48 * GIB
    assert of(found, "memplan_compared_predicted_high_bytes", **CARD, figure="reserved") == 54 * GIB
    assert of(found, "memplan_growth_bytes", **CARD, per="step") == 1024
    assert of(found, "memplan_step") == 30
    assert of(found, "memplan_checks_total") == 4
    assert of(found, "memplan_host_memory_available_bytes") == 200 * GIB
    assert of(found, "memplan_region_peak_bytes", region="forward") == 20 * GIB
    assert of(found, "memplan_plan_info", target="model.py", profile="H100 80GB", verdict="fits") == 1
    assert of(found, "memplan_scrape_errors_total") == 0
    levels = {level.word: of(found, "memplan_level", **CARD, memplan_level=level.word) for level in Level}
    assert levels == {"normal": 0, "warning": 1, "critical": 0, "emergency": 0}


def test_what_nobody_can_tell_is_left_out() -> None:
    bare = device(device="cpu", uuid="", reserved=None, inactive=None, peak_reserved=None, requested=None, times=())
    judged = health(bare, fragmentation=None, measured=None, predicted=None, predicted_high=None, figure="", trend=None)
    found = collected(check(0, bare, devices=(judged,), step=None, regions=()), plan=None)
    assert of(found, "memplan_torch_allocated_bytes", gpu="cpu") == 40 * GIB
    names = {name for name, _ in found}
    for missing in ("torch_reserved_bytes", "fragmentation_ratio", "predicted_peak_bytes", "compared_bytes", "growing"):
        assert f"memplan_{missing}" not in names
    assert "memplan_step" not in names
    assert "memplan_allocation_seconds_bucket" not in names


def test_before_the_first_check_there_is_only_what_made_the_figures() -> None:
    assert {name for name, _ in collected(None)} == {
        *("memplan_build_info", "memplan_plan_info", "memplan_scrape_errors_total")
    }


def test_cards_and_ranks_have_series_of_their_own() -> None:
    reads = (device(0), device(1), device(0, uuid="GPU-other"))
    ranks = tuple(health(read, rank=rank) for rank, read in enumerate(reads))
    found = collected(check(0, *reads, devices=ranks))
    for rank, read in enumerate(reads):
        labels = {"gpu": read.device, "gpu_uuid": read.uuid, "rank": str(rank)}
        assert of(found, "memplan_gpu_memory_used_bytes", **labels) == read.used


def test_one_card_told_twice_is_one_series() -> None:
    # Prometheus refuses a scrape that has a series twice; then all the others would be lost too.
    found = collected(check(0, device(0), device(0, used=1)))
    assert of(found, "memplan_gpu_memory_used_bytes", **CARD) == 50 * GIB


@LAW
@given(st.lists(st.integers(0, 1 << 40), min_size=48, max_size=48), st.integers(0, 1 << 60))
def test_the_histogram_counts_every_allocation_once(times: list[int], spent: int) -> None:
    found = collected(check(0, device(0, times=tuple(times), spent=spent)))
    buckets = {
        float(dict(labels)["le"]): value for (name, labels), value in found.items() if name.endswith("seconds_bucket")
    }
    assert buckets[math.inf] == sum(times) == of(found, "memplan_allocation_seconds_count", **CARD)
    for bound, value in buckets.items():
        if bound < math.inf:
            # The i-th counts those of less than 2**i nanoseconds.
            assert value == sum(number for power, number in enumerate(times) if 2**power <= round(bound * 1e9))
    assert of(found, "memplan_allocation_seconds_sum", **CARD) == spent / 1e9


ANY_TEXT = st.text(max_size=30)
"""With quotes, backslashes and line breaks; the example has lone surrogates, as file names that are no UTF-8 do."""


@LAW
@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
@example("run\udcff", "\ud800", "\udfff")
def test_whatever_names_hold_they_come_back_as_they_are(job: str, region: str, card: str) -> None:
    plan = dataclasses.replace(PLAN, target=region)
    read = device(device=card, uuid=job)
    found = collected(check(0, read, regions=(RegionUse(name=region, bytes=7),)), job=job, plan=plan)
    job, region, card = (text.encode("utf-8", "replace").decode() for text in (job, region, card))
    labels = [dict(labels) for name, labels in found if name == "memplan_region_peak_bytes"]
    assert labels == [{key: value for key, value in (("job", job), ("region", region)) if value}]
    labels = [dict(labels) for name, labels in found if name == "memplan_torch_allocated_bytes"]
    assert labels == [{key: value for key, value in (("job", job), ("gpu", card), ("gpu_uuid", job)) if value}]


def test_however_many_regions_there_are_few_have_a_series() -> None:
    many = tuple(RegionUse(name=f"layer {number}", bytes=number) for number in range(5000))
    found = collected(check(0, regions=many))
    peaks = sorted(value for (name, _), value in found.items() if name == "memplan_region_peak_bytes")
    assert peaks == [*range(5000 - MOST_REGIONS, 5000)]
    assert of(found, "memplan_regions") == 5000


def test_a_source_that_fails_is_counted_and_training_hears_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def source() -> Check:
        raise RuntimeError("CUDA error: device-side assert triggered")

    exporter = start(source, port=0, job="run")
    try:
        scraped(exporter)
        found = samples(scraped(exporter))
    finally:
        exporter.close()
    assert of(found, "memplan_scrape_errors_total") == 2
    assert of(found, "memplan_checks_total") is None
    assert capsys.readouterr() == ("", "")


def test_many_scrapes_at_once_get_whole_answers() -> None:
    exporter = start(lambda: check(3), port=0, job="run", plan=PLAN)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = {*pool.map(lambda _: scraped(exporter), range(100))}
    finally:
        exporter.close()
    assert len(found) == 1


def test_a_taken_port_is_an_error_that_says_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"cannot listen at 127\.0\.0\.1:{port}: Address already in use") as found:
            start(lambda: None, port=port)
    assert found.value.hint


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("no.such.host.invalid", 0), ("192.0.2.1", 0)])
def test_where_nobody_can_listen_is_an_error(host: str, port: int) -> None:
    with pytest.raises(UsageError, match="cannot listen at"):
        start(lambda: None, host=host, port=port)


def test_closing_frees_the_port_and_may_be_done_twice() -> None:
    exporter = start(lambda: None, port=0)
    port = int(exporter.address.rsplit(":", 1)[1])
    exporter.close()
    exporter.close()
    start(lambda: None, port=port).close()


def test_metrics_may_stand_in_the_users_registry_as_well() -> None:
    registry = CollectorRegistry(auto_describe=True)
    Gauge("learning_rate", "of the user", registry=registry).set(0.1)
    checks = [check(3)]
    monitor = SimpleNamespace(latest=lambda: checks[-1], plan=PLAN)
    exporter = export_metrics(monitor, port=0, registry=registry)
    try:
        assert "learning_rate" not in scraped(exporter)
        both = generate_latest(registry).decode()
        assert "learning_rate 0.1" in both
        assert "memplan_torch_allocated_bytes{" in both
        with pytest.raises(UsageError, match="has memplan's metrics already"):
            export_metrics(monitor, port=0, registry=registry)
        checks.append(check(7))
        assert "memplan_checks_total{" in scraped(exporter)
        assert 8.0 in [
            value for (name, _), value in samples(scraped(exporter)).items() if name == "memplan_checks_total"
        ]
    finally:
        exporter.close()
    assert "memplan" not in generate_latest(registry).decode()


def test_a_registry_may_be_written_to_a_file_for_node_exporter(tmp_path: Any) -> None:
    exporter = start(lambda: check(3), port=0, job="run")
    try:
        write_to_textfile(str(tmp_path / "memplan.prom"), exporter.registry)
        assert (tmp_path / "memplan.prom").read_text() == scraped(exporter)
    finally:
        exporter.close()


def test_a_missing_package_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError, match="prometheus-client") as found:
        start(lambda: None, port=0)
    assert "memplan[runtime]" in str(found.value)


def test_a_process_that_only_exports_does_not_load_torch() -> None:
    program = (
        "import sys; from memplan.runtime.metrics.exporter import start; from memplan.runtime.web import server;"
        "start(lambda: None, port=0).close();"
        "server.start(lambda: None, port=0).close(); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
