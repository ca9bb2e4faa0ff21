"""What is exported, and the rules of alerts."""

from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from memplan.runtime.metrics.exporter import start
from memplan.runtime.pools.pool import TensorPool
from tests.runtime.metrics.checks import PLAN, check
from tests.runtime.metrics.prometheus import EXAMPLES
from tests.runtime.metrics.scraping import scraped


def families() -> list[Any]:
    pool = TensorPool()
    pool.take(3).give_back()
    exporter = start(lambda: check(3), port=0, plan=PLAN, pools={"pool": pool})
    try:
        return list(text_string_to_metric_families(scraped(exporter)))
    finally:
        exporter.close()


def exported() -> set[str]:
    return {sample.name for family in families() for sample in family.samples}


def rules() -> list[dict[str, Any]]:
    return yaml.safe_load((EXAMPLES / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
