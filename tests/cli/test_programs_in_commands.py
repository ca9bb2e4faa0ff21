"""Commands other than ``estimate`` with a program."""

import json
import sys
from pathlib import Path

import pytest

from memplan.cli.app import main

TRAIN = """
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
options = parser.parse_args()
model = torch.nn.Linear(1024, 1024).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
for step in range(1000):
    model(torch.randn(options.batch_size, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPLAN_CACHE_DIR", str(tmp_path / "cache"))
    Path("train.py").write_text(TRAIN)


def said(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capfd.readouterr()
    return code, captured.out, " ".join(captured.err.split())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["recommend", "train.py", "--gpu", "t4", "--vary", "size=--x"], "accumulation=--ARGUMENT"),
        (["recommend", "train.py", "--gpu", "t4", "--gpus", "4"], "torchrun --nproc-per-node 4"),
        (["recommend", "train.py", "--gpu", "t4", "--target-batch", "64"], "--vary accumulation=--NAME"),
        (["recommend", "train.py", "--gpu", "t4", "-o", "setup.json"], "cannot stand in one"),
        (["checkpoint-plan", "train.py", "--gpu", "t4", "--level", "op"], "--level block plans programs"),
        (["checkpoint-plan", "train.py", "--gpu", "t4", "--batch-size", "8"], "--batch-size would change nothing"),
        (["simulate", "train.py", "--gpu", "t4", "--seq-len-dist", "uniform:8-16"], "say how long sequences are"),
        (["batch", "train.py", "--gpu", "t4", "--of", "seq-len"], "--vary seq-len=--NAME"),
        (["batch", "train.py", "--gpu", "t4", "--vary", "size"], "batch=--ARGUMENT"),
        (["batch", "train.py", "--gpu", "t4", "--batch-size", "8"], "--batch-size would change nothing"),
    ],
)
def test_what_cannot_be_done_with_a_program_is_said(
    arguments: list[str], why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _, told = said(arguments, capfd)
    assert code == 2
    assert why in told


@pytest.mark.slow
def test_the_largest_batch_of_a_program(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(["batch", "train.py", "--gpu", "t4", "--json"], capfd)
    assert code == 0
    assert '"value": ' in out
    assert "exact" in out or "confirmed" in out


@pytest.mark.slow
@pytest.mark.parametrize("command", ["reuse-plan", "simulate"])
def test_what_is_played_may_be_a_program(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    more = ["--steps", "10"] if command == "simulate" else ["--time-limit", "1s"]
    code, _, told = said([command, "train.py", "--gpu", "t4", *more, "--", "--batch-size", "32"], capfd)
    assert code == 0, told


@pytest.mark.slow
def test_a_job_of_a_project_may_be_a_program(capfd: pytest.CaptureFixture[str]) -> None:
    Path("memplan.toml").write_text(
        'gpus = ["t4"]\n[[job]]\nname = "small"\nscript = "train.py"\nargs = ["--batch-size", "32"]\n'
    )
    code, out, told = said(["gate", "--json"], capfd)
    assert code == 0, told
    assert json.loads(out)["exit_code"] == 0
    code, _, told = said(["estimate", "train.py", "-q"], capfd)
    assert code == 0
    assert "this is for t4, as memplan.toml says" in told


@pytest.mark.slow
def test_a_monitored_run_is_compared_with_a_programs_estimate(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--", "--batch-size", "32"]
    code, _, told = said(["estimate", "train.py", "--gpu", "t4", "-f", "json=plan.json", *arguments], capfd)
    assert code == 0, told
    plan = json.loads(Path("plan.json").read_text())
    run = ["-q", "-f", "json=run.json", "--plan", "plan.json", "--", sys.executable, "-c", "pass"]
    code, _, told = said(["monitor", *run], capfd)
    assert code == 0, told
    assert json.loads(Path("run.json").read_text())["plan"]["device_bytes"] == plan["peak"]["device_bytes"]


def test_a_plan_of_a_program_names_the_line_to_add(capfd: pytest.CaptureFixture[str]) -> None:
    block = "torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU())"
    text = TRAIN.replace("torch.nn.Linear(1024, 1024)", f"torch.nn.Sequential({block}, {block})")
    Path("train.py").write_text(text)
    made = next(number for number, line in enumerate(text.splitlines(), 1) if line.startswith("model ="))
    arguments = [
        "--slowdown",
        "1",
        "-o",
        "plan.json",
        "-f",
        "text",
        "-f",
        "json=out.json",
        "--",
        "--batch-size",
        "65536",
    ]
    code, out, told = said(["checkpoint-plan", "train.py", *arguments], capfd)
    assert code == 0, told
    assert json.loads(Path("out.json").read_text())["model_place"] == {
        "expression": "model",
        "line": f"train.py:{made}",
    }
    assert f'add after train.py:{made}\nimport memplan\nmemplan.apply(model, "plan.json")' in out


ACCUMULATES = """
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--micro-batch-size", type=int, default=4096)
parser.add_argument("--grad-accum-steps", type=int, default=1)
parser.add_argument("--bf16", action="store_true")
options = parser.parse_args()
blocks = [nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(8)]
model = nn.Sequential(*blocks).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
for step in range(1000):
    for _ in range(options.grad_accum_steps):
        with torch.autocast("cuda", torch.bfloat16, enabled=options.bf16):
            loss = model(torch.randn(options.micro_batch_size, 1024, device="cuda")).float().square().mean()
        (loss / options.grad_accum_steps).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
def test_a_program_is_recommended_its_own_arguments_and_a_plan(capfd: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(ACCUMULATES)
    code, out, told = said(["recommend", "train.py", "--gpu", "l4", "--time-limit", "40traces", "--json"], capfd)
    assert code == 0, told
    answer = json.loads(out)
    assert answer["proof"]["ending"] == "best"
    assert answer["global_batch"] == 4096
    tried = {" ".join(row["changes"]) for row in (*answer["rows"], *(each for each in answer["what_ifs"]))}
    assert "--checkpoint full" in tried
    assert "--bf16" in tried
    splits = [int(words.split()[-1]) for words in tried if words.startswith("--micro-batch-size")]
    assert 1 < max(splits) <= 64, "a program runs every micro-batch while it is traced"
    assert any("are the program's own" in sentence for sentence in answer["assumptions"])
    for row in answer["rows"][:2]:
        outside = [word for change in row["changes"] if change.startswith("--checkpoint") for word in change.split()]
        own = [word for change in row["changes"] if not change.startswith("--checkpoint") for word in change.split()]
        code, out, _ = said(["estimate", "train.py", "--gpu", "l4", "--json", *outside, "--", *own], capfd)
        assert json.loads(out)["peak"]["device_bytes"] == row["device_bytes"]
