"""Files that memplan 0.1.0 wrote are read, and written again as the same text."""

import json
from pathlib import Path
from typing import Any

import pytest

from memplan.gate.saved import load_content, load_entries, read_digests, render_baseline
from memplan.report.estimate import json as estimate_json
from memplan.report.gate import json as gate_json
from memplan.runtime.adaptive.prediction import predicted_size
from memplan.runtime.checkpoint.plan_file import plan_text, read_plan
from memplan.runtime.monitor.plan import read_plan as read_prediction
from memplan.runtime.partition.order_file import read_order, write_order
from memplan.runtime.profile import recording
from tests.contract.goldens import obey

FOLDER = Path(__file__).parent / "files_of_0_1_0"


def content(name: str) -> Any:
    return json.loads((FOLDER / name).read_text("utf-8"))


@pytest.mark.parametrize("name", ["estimate.json", "estimates.json"])
def test_estimates(name: str) -> None:
    path = FOLDER / name
    entries, digests = load_entries(path), read_digests(load_content(path), name)
    written = estimate_json.render([*entries.values()], [digests.get(key) for key in entries])
    assert written + "\n" == path.read_text("utf-8")
    obey("estimate", content(name))


def test_results_of_the_gate_and_baselines() -> None:
    result = gate_json.read_gate(content("gate.json"), "gate.json")
    assert len(result.digests) == 1
    assert gate_json.render(result) + "\n" == (FOLDER / "gate.json").read_text("utf-8")
    obey("gate", content("gate.json"))
    assert render_baseline(load_entries(FOLDER / "baseline.json")) == (FOLDER / "baseline.json").read_text("utf-8")


def test_recordings() -> None:
    found = recording.read(content("profile.json"), "profile.json")
    assert recording.render(found) == (FOLDER / "profile.json").read_text("utf-8")
    obey("profile", content("profile.json"))


def test_plans(tmp_path: Path) -> None:
    assert plan_text(read_plan(FOLDER / "plan.json")) == (FOLDER / "plan.json").read_text("utf-8")
    write_order(read_order(FOLDER / "order.json"), tmp_path / "order.json")
    assert (tmp_path / "order.json").read_text("utf-8") == (FOLDER / "order.json").read_text("utf-8")


def test_predictions() -> None:
    obey("batch", content("batch.json"))
    assert predicted_size(FOLDER / "batch.json") == content("batch.json")["results"][0]["value"]
    prediction = read_prediction(FOLDER / "estimate.json")
    assert prediction.device == content("estimate.json")["peak"]["device_bytes"]
    assert prediction.curve is not None
