"""The Grafana dashboard as a file: its parts fit together, and name what the exporter has."""

import json
import re
from itertools import combinations
from typing import Any

import pytest
import yaml

from memplan.runtime.monitor.records import Thresholds
from tests.runtime.metrics.dashboard import DASHBOARD, dashboard, queries
from tests.runtime.metrics.exported import exported, rules
from tests.runtime.metrics.prometheus import EXAMPLES

NAME = re.compile(r"(?<![\w\"])memplan_\w+(?![\w]*\s*=[~\"])")
NOT_OF_THE_SDK = {"builtIn", "titleFormat", "textFormat", "definition", "mode"}
"""Keys that Grafana writes and its SDK of 10.1 does not know (``mode`` of a heatmap's tooltip came later)."""


def test_every_metric_of_the_dashboard_and_the_alerts_is_exported() -> None:
    told = {query.expression for query in queries()} | {rule["expr"] for rule in rules()}
    told |= {each["definition"] for each in dashboard()["templating"]["list"] if "definition" in each}
    named = {name for expression in told for name in NAME.findall(expression)}
    assert len(named) > 30
    assert named <= exported()


def test_panels_lie_in_grafanas_grid_and_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = {panel["id"]: [panel["gridPos"][side] for side in "xywh"] for panel in panels}
    assert all(x >= 0 and x + width <= 24 for x, _, width, _ in cells.values())
    for (x, y, width, height), (left, top, wide, high) in combinations(cells.values(), 2):
        assert x + width <= left or left + wide <= x or y + height <= top or top + high <= y


def test_the_data_source_is_a_variable_everywhere() -> None:
    found = re.findall(r'"uid": "([^"]+)"', DASHBOARD.read_text())
    assert set(found) == {"${datasource}", "-- Grafana --", dashboard()["uid"]}
    variables = {each["name"]: each for each in dashboard()["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert list(variables) == ["datasource", "job", "gpu"]


def test_grafanas_own_sdk_understands_every_key() -> None:
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder")
    pytest.importorskip("grafana_foundation_sdk.cog.plugins").register_default_plugins()
    written = json.loads(json.dumps(models.Dashboard.from_json(dashboard()), cls=encoder.JSONEncoder))

    def lost(before: Any, after: Any, key: str = "") -> set[str]:
        if isinstance(before, dict) and isinstance(after, dict):
            return {each for name, value in before.items() for each in lost(value, after.get(name), name)}
        if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
            return {each for pair in zip(before, after, strict=True) for each in lost(*pair, key)}
        return set() if before == after else {key}

    assert lost(dashboard(), written) <= NOT_OF_THE_SDK


def test_alerts_begin_where_the_monitors_levels_do() -> None:
    told = {rule["alert"]: float(rule["expr"].rsplit(maxsplit=1)[1]) for rule in rules() if "_ratio" in rule["expr"]}
    levels = Thresholds()
    assert told == pytest.approx(
        {
            "MemplanHeadroomLow": 1 - levels.critical,
            "MemplanHeadroomGone": 1 - levels.emergency,
            "MemplanFragmentationHigh": levels.fragmentation,
        }
    )


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    cases = yaml.safe_load((EXAMPLES / "prometheus" / "alerts_test.yml").read_text())["tests"]
    tried = [each for case in cases for each in case["alert_rule_test"]]
    for rule in rules():
        mine = [bool(each.get("exp_alerts")) for each in tried if each["alertname"] == rule["alert"]]
        assert set(mine) == {True, False}, rule["alert"]
