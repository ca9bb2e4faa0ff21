"""``memplan checkpoint-plan`` as a user types it: real targets, real solvers, real files."""

import json
from pathlib import Path

import pytest

from memplan.cli.app import main
from tests.contract.goldens import obey

TARGET = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(6))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def model():
    return Net()


def batch(batch_size):
    return torch.randn(batch_size, 128, 64)


def loss(output, batch):
    return output.square().mean()
"""
CHAIN = {
    "nodes": [{"id": index, "cost_cpu": 1, "cost_ram": 10, "backward": index > 2} for index in range(6)],
    "links": [{"source": index, "target": index + 1} for index in range(5)]
    + [{"source": 2 - back, "target": 3 + back} for back in range(3)],
}


@pytest.fixture
def target(tmp_path: Path) -> str:
    file = tmp_path / "net.py"
    file.write_text(TARGET)
    return str(file)


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    code = main(["checkpoint-plan", *arguments, "--json", "-q"])
    document = json.loads(capsys.readouterr().out)
    obey("checkpoint-plan", document)
    return code, document


@pytest.mark.slow
def test_a_plan_is_made_written_and_estimated_to_what_it_promised(target, tmp_path, capsys):
    plan = tmp_path / "plan.json"
    common = [target, "--gpu", "cpu", "--batch-size", "16"]
    code, generous = _json(capsys, *common, "--budget", "1GiB")
    assert (code, generous["result"], generous["overhead_ratio"]) == (0, "optimal", 0.0)
    assert generous["proved"]
    budget = (generous["peak_before_bytes"] + generous["least_feasible_bytes"]) // 2
    code, found = _json(capsys, *common, "--budget", str(budget), "-o", str(plan))
    assert code == 0
    assert found["result"] in {"optimal", "feasible"}
    assert found["peak_after_bytes"] <= budget < found["peak_before_bytes"]
    assert found["overhead_ratio"] > 0
    assert any(row["action"] != "keep" for row in found["blocks"])
    assert {"peak_bytes": found["peak_after_bytes"], "overhead_ratio": found["overhead_ratio"]} in found["pareto"]
    assert [point["peak_bytes"] for point in found["pareto"]] == sorted(
        point["peak_bytes"] for point in found["pareto"]
    )
    main(["estimate", *common, "--checkpoint", str(plan), "--json", "-q"])
    assert json.loads(capsys.readouterr().out)["peak"]["device_bytes"] == found["peak_after_bytes"]


@pytest.mark.slow
def test_the_least_budget_named_can_be_met(target, capsys):
    common = [target, "--gpu", "cpu", "--batch-size", "16"]
    _, generous = _json(capsys, *common, "--budget", "1GiB")
    code, least = _json(capsys, *common, "--budget", str(generous["least_feasible_bytes"]))
    assert code == 0
    assert least["peak_after_bytes"] == generous["least_feasible_bytes"]


@pytest.mark.slow
def test_a_step_that_fits_gets_a_plan_of_nothing(target, tmp_path, capsys):
    plan, page = tmp_path / "plan.json", tmp_path / "plan.html"
    common = [target, "--gpu", "cpu"]
    written = ["-o", str(plan), "-f", "text", "-f", f"html={page}"]
    assert main(["checkpoint-plan", *common, "--budget", "1GiB", *written]) == 0
    assert "nothing to apply: the step fits as it is" in capsys.readouterr().out
    content = json.loads(plan.read_text())
    assert (content["blocks"], content["segments"]) == ([], [])
    assert content["promise"]["peak_before_bytes"] == content["promise"]["peak_after_bytes"]
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert main(["estimate", *common, "--checkpoint", str(plan), "-q"]) == 0


@pytest.mark.slow
def test_an_infeasible_budget_exits_3_and_names_the_least(target, capsys):
    code, found = _json(capsys, target, "--gpu", "cpu", "--batch-size", "16", "--budget", "1KiB")
    assert (code, found["result"], found["fits"]) == (3, "infeasible", False)
    assert found["least_feasible_bytes"] > 1024
    assert found["binding"]


@pytest.mark.slow
def test_code_alone_goes_to_standard_output(target, capsys):
    assert main(["checkpoint-plan", target, "--gpu", "cpu", "--budget", "1GiB", "--code", "-q"]) == 0
    compile(capsys.readouterr().out, "apply_plan.py", "exec")


def test_everything_wrong_is_said_at_once(capsys):
    arguments = ["nowhere.py", "--budget", "much", "--method", "magic", "--time-limit", "nan", "--budget-ratio", "0.5"]
    assert main(["checkpoint-plan", *arguments]) == 2
    said = capsys.readouterr().err
    for part in ("nowhere.py", "'much'", "'magic'", "--time-limit", "--budget-ratio is for graph files"):
        assert part in said


@pytest.mark.slow
def test_inference_and_second_plans_are_refused(target, capsys):
    for wrong in (["--mode", "inference"], ["--checkpoint", "full"]):
        assert main(["checkpoint-plan", target, "--gpu", "cpu", "--budget", "1GiB", *wrong]) == 2
        assert wrong[0] in capsys.readouterr().err


def test_a_graph_from_a_file_is_solved_op_by_op(tmp_path, capsys):
    file = tmp_path / "chain.json"
    file.write_text(json.dumps(CHAIN))
    code, found = _json(capsys, str(file), "--budget-ratio", "1.0", "--time-limit", "5")
    assert (code, found["overhead_ratio"], found["level"]) == (0, 0.0, "op")
    assert sorted(found["schedule"]) == sorted(str(index) for index in range(6))
    # Forward values 0, 1, 2 and the first backward value are alive at once: 40. With 30, value 0 or 1 is made again.
    assert found["peak_before_bytes"] == 40
    code, found = _json(capsys, str(file), "--budget", "30", "--time-limit", "5")
    assert (code, found["peak_after_bytes"]) == (0, 30)
    assert 0 < found["overhead_ratio"] <= 2 / 6
    code, found = _json(capsys, str(file), "--budget", "15", "--time-limit", "5")
    assert code == 3


def test_a_graph_needs_a_budget_and_takes_no_step(tmp_path, capsys):
    file = tmp_path / "chain.json"
    file.write_text(json.dumps(CHAIN))
    assert main(["checkpoint-plan", str(file)]) == 2
    assert "--budget-ratio" in capsys.readouterr().err
    assert (
        main(["checkpoint-plan", str(file), "--budget", "1GiB", "--batch-size", "4", "-f", "svg", "-o", "a.json"]) == 2
    )
    said = capsys.readouterr().err
    assert "--out, --batch-size" in said
    assert "text, json" in said


@pytest.mark.slow
def test_the_ops_of_a_compiled_step_are_planned_within_a_budget_of_their_own(target, tmp_path, capsys):
    plan = tmp_path / "order.json"
    common = [target, "--level", "op", "--batch-size", "4", "--time-limit", "2"]
    code, found = _json(capsys, *common, "--budget-ratio", "0.5", "-o", str(plan))
    assert (code, found["level"], found["fits"]) == (0, "op", True)
    assert found["peak_after_bytes"] <= found["budget_bytes"] == found["peak_before_bytes"] // 2
    assert found["overhead_ratio"] > 0
    assert any("neither optimizer state" in sentence for sentence in found["assumptions"])
    content = json.loads(plan.read_text())
    assert set(content["forward"]) & set(content["backward"])
    code, found = _json(capsys, *common, "--budget", "1KiB")
    assert (code, found["result"]) == (3, "infeasible")


def test_what_op_level_has_no_use_for_is_a_usage_error(target, capsys):
    idle = ["--method", "ilp", "--offload", "--blocks", "blocks.*", "--code", "--optimizer", "sgd"]
    assert main(["checkpoint-plan", target, "--level", "op", *idle]) == 2
    said = capsys.readouterr().err
    for part in ("--method, --offload, --blocks, --optimizer", "--format", "either --budget or --budget-ratio"):
        assert part in said


def test_a_step_that_branches_on_values_is_sent_to_block_level(target, capsys):
    file = Path(target)
    file.write_text(TARGET.replace("return x + self", "return x if (x > 0).any() else x + self"))
    assert main(["checkpoint-plan", target, "--level", "op", "--budget", "1GiB", "-q"]) == 3
    said = capsys.readouterr().err
    assert "cannot be captured as one graph" in said
    assert "--level block" in said
