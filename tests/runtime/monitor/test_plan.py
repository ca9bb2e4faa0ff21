"""Plans out of real estimates, and what is no plan."""

import json
from pathlib import Path
from typing import Any

import pytest

from memplan.cli.app import main
from memplan.errors import UsageError
from memplan.runtime.monitor.plan import parse_plan, read_plan

ESTIMATE: dict[str, Any] = {
    "schema_version": "1.3",
    "command": "estimate",
    "target": "model.py",
    "verdict": "tight",
    "gpu": {"name": "h100-80g", "total_bytes": 80, "usable_bytes": 79},
    "peak": {
        "allocated_bytes": 60,
        "reserved_bytes": 64,
        "device_bytes": 65,
        "low_bytes": 62,
        "high_bytes": 70,
        "phase": "backward",
        "module": "layers.1",
    },
    "breakdown": {"parameter": 65},
}


def test_an_estimate_is_a_plan() -> None:
    plan = parse_plan(ESTIMATE)
    assert (plan.target, plan.gpu, plan.verdict, plan.total, plan.usable) == ("model.py", "h100-80g", "tight", 80, 79)
    assert (plan.allocated, plan.reserved, plan.device, plan.low, plan.high) == (60, 64, 65, 62, 70)
    assert (plan.phase, plan.module, plan.breakdown, plan.outside) == ("backward", "layers.1", {"parameter": 65}, 1)
    assert plan.curve is None


def test_one_of_several_gpus() -> None:
    other = {**ESTIMATE, "gpu": {"name": "a100-40g", "total_bytes": 40, "usable_bytes": 39}}
    several = {"schema_version": "1.0", "command": "estimate", "estimates": [ESTIMATE, other]}
    assert parse_plan(several, gpu="a100-40g").total == 40
    with pytest.raises(UsageError, match="several GPUs") as caught:
        parse_plan(several)
    assert "a100-40g, h100-80g" in str(caught.value)
    with pytest.raises(UsageError, match="no GPU 'b200'"):
        parse_plan(several, gpu="b200")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], "no result of memplan"),
        ({"command": "gate", "schema_version": "1.0"}, "no result of memplan estimate"),
        ({**ESTIMATE, "schema_version": "2.0"}, "2.0 is not read here"),
        ({**ESTIMATE, "verdict": "unknown", "peak": None}, "UNKNOWN"),
        ({**ESTIMATE, "peak": {}}, r"peak\.allocated_bytes: missing"),
        (
            {**ESTIMATE, "peak": {**ESTIMATE["peak"], "high_bytes": -1}},
            r"peak\.high_bytes: expected a whole number of at least 0",
        ),
        (
            {**ESTIMATE, "peak": {**ESTIMATE["peak"], "high_bytes": True}},
            r"peak\.high_bytes: expected a whole number",
        ),
        ({**ESTIMATE, "estimates": []}, "no list"),
    ],
)
def test_what_is_no_plan(content: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_plan(content)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path, text in ((tmp_path / "none.json", None), (tmp_path / "bad.json", "{")):
        if text:
            path.write_text(text)
        with pytest.raises(UsageError) as caught:
            read_plan(path)
        assert str(path) in str(caught.value)
        assert "memplan estimate" in str(caught.value)


def test_a_curve_has_columns_of_one_length() -> None:
    curve = {"event": [0, 5], "allocated_bytes": [1, 2], "reserved_bytes": [2, 2], "categories": {"parameter": [1, 1]}}
    phases = [{"phase": "forward", "step": 1, "start": 0, "end": 6}]
    plan = parse_plan({**ESTIMATE, "timeline": {"curve": curve, "phases": phases}})
    assert plan.curve is not None
    assert (plan.curve.events, plan.curve.allocated) == ((0, 5), (1, 2))
    assert (plan.curve.categories, plan.curve.phases) == ({"parameter": (1, 1)}, (("forward", 0, 6),))
    with pytest.raises(UsageError, match="differ in length"):
        parse_plan({**ESTIMATE, "timeline": {"curve": {**curve, "event": [0]}, "phases": phases}})


def test_what_the_estimator_writes_today_is_read(tmp_path: Path) -> None:
    target, file = tmp_path / "net.py", tmp_path / "plan.json"
    target.write_text(
        "import torch\n"
        "def model(): return torch.nn.Linear(64, 64)\n"
        "def batch(batch_size, seq_len=None): return torch.randn(batch_size, 64)\n"
        "def loss(output, batch): return output.mean()\n"
    )
    arguments = ["estimate", str(target), "--gpu", "cpu", "--gpu", "h100-80g", "--timeline", "-f", f"json={file}"]
    assert main(arguments) == 0
    written = next(each for each in json.loads(file.read_text())["estimates"] if each["gpu"]["name"] == "h100-80g")
    plan = read_plan(file, "h100-80g")
    assert plan.device == written["peak"]["device_bytes"] == sum(plan.breakdown.values())
    assert plan.low <= plan.device <= plan.high
    assert plan.curve is not None
    assert max(plan.curve.allocated) <= plan.allocated
    assert {name for name, _, _ in plan.curve.phases} >= {"forward", "backward", "optimizer"}
