"""The examples with Debian's Prometheus: rules, a scrape, every expression of the dashboard, an alert that fires."""

import subprocess
from collections.abc import Iterator

import pytest

from memplan.runtime.metrics.exporter import start
from memplan.runtime.monitor.records import Check, Level
from tests.runtime.metrics.checks import GIB, PLAN, check, device, health
from tests.runtime.metrics.dashboard import queries
from tests.runtime.metrics.prometheus import EXAMPLES, PROMETHEUS, PROMTOOL, Prometheus
from tests.runtime.metrics.scraping import scraped

pytestmark = pytest.mark.skipif(not (PROMETHEUS and PROMTOOL), reason="no Prometheus: apt install prometheus")


def promtool(*arguments: str, given: str | None = None) -> str:
    done = subprocess.run(
        [str(PROMTOOL), *arguments],
        cwd=EXAMPLES / "prometheus",
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Training:
    """A run whose memory grows from check to check, beyond what was predicted."""

    def __init__(self) -> None:
        self.checks = 0

    def last(self) -> Check:
        number = self.checks = self.checks + 1
        read = device(peak_reserved=60 * GIB, ooms=number // 2, retries=number, times=(0,) * 9 + (10 * number,) * 39)
        return check(number, read, devices=(health(read, level=Level.EMERGENCY, demand=79 * GIB),))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    exporter = start(Training().last, port=0, job="gpt2", plan=PLAN)
    found = Prometheus(tmp_path_factory.mktemp("prometheus"), exporter.address)
    try:
        found.until(lambda: found.query("memplan_checks_total > 4"))
        yield found
    finally:
        found.close()
        exporter.close()


def test_the_rules_and_their_cases_hold() -> None:
    promtool("check", "config", "prometheus.yml")
    assert "SUCCESS" in promtool("check", "rules", "alerts.yml")
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml")


def test_prometheus_finds_nothing_to_complain_of_in_the_names() -> None:
    exporter = start(lambda: check(3), port=0, job="gpt2", plan=PLAN)
    try:
        assert promtool("check", "metrics", given=scraped(exporter)) == ""
    finally:
        exporter.close()


def test_what_is_scraped_is_what_was_checked(server: Prometheus) -> None:
    assert server.value("memplan_torch_allocated_bytes") == 40 * GIB
    (found,) = server.query("memplan_gpu_memory_used_bytes")
    assert found["metric"] == {
        "__name__": "memplan_gpu_memory_used_bytes",
        "job": "gpt2",
        "gpu": "cuda:0",
        "gpu_uuid": "GPU-0000",
        "instance": found["metric"]["instance"],
    }
    assert server.value('up{job="memplan"}') == 1


@pytest.mark.parametrize("query", [*queries()], ids=lambda query: f"{query.panel}: {query.legend}")
def test_every_expression_of_the_dashboard_has_data(server: Prometheus, query: tuple[str, str, str]) -> None:
    def data() -> bool:
        series = server.query(query[1])
        return bool(series) and all(each["value"][1] != "NaN" for each in series)

    server.until(data, 10)


def test_values_of_expressions_are_what_they_say(server: Prometheus) -> None:
    by_name = {(query.panel, query.legend.split(" {{")[0]): query.expression for query in queries()}
    assert server.value(by_name["Level", "{{job}}"]) == 3
    assert server.value(by_name["Reserved and not allocated", "cached"]) == 8 * GIB
    assert server.value(by_name["Beyond the plan", "{{job}}"]) == 6 * GIB


def test_alerts_fire(server: Prometheus) -> None:
    expected = {"MemplanPeakAbovePrediction", "MemplanHeadroomGone", "MemplanEmergency", "MemplanOutOfMemory"}
    expected |= {"MemplanAllocationRetries", "MemplanNoChecks"}  # These checks are of another year.
    server.until(lambda: expected <= server.firing())
    assert server.firing() == expected


def test_prometheus_takes_openmetrics_too(server: Prometheus) -> None:
    # What this Prometheus asks for (``Accept``) is OpenMetrics first.
    (target,) = server.api("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
