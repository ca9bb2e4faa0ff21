"""Commands other than ``estimate`` with a program."""

import json
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
        (["recommend", "train.py", "--gpu", "t4", "--", "--batch-size", "8"], "memplan batch varies its batch"),
        (["checkpoint-plan", "train.py", "--gpu", "t4", "--", "--batch-size", "8"], "put on the model alone"),
        (["checkpoint-plan", "train.py", "--gpu", "t4", "--level", "op"], "put on the model alone"),
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
