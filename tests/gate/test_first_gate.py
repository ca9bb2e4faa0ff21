"""A repository that has never heard of memplan: init, a layer that doubles, and the gate that fails."""

from pathlib import Path

import pytest

from memplan.cli.app import main

MODEL = """
import torch
from torch import nn

WIDTHS = [1024, 1024, 1024, 1024, 1024, 1024]


class Block(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.up = nn.Linear(1024, inner)
        self.down = nn.Linear(inner, 1024)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def model():
    return nn.Sequential(*[Block(4 * width) for width in WIDTHS])


def batch(batch_size):
    return torch.randn(batch_size, 1024)


def loss(output, batch):
    return output.sum()
"""


@pytest.mark.slow
def test_a_layer_that_doubles_fails_the_gate_that_init_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPLAN_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "model.py").write_text(MODEL)
    assert main(["init", "--gpu", "t4"]) == 0
    assert "baseline 'memplan-baseline.json': 1 written" in capfd.readouterr().out
    assert main(["gate"]) == 0
    assert "1 of 1 unchanged" in capfd.readouterr().out
    (tmp_path / "model.py").write_text(MODEL.replace("WIDTHS = [1024,", "WIDTHS = [2048,"))
    assert main(["gate", "-f", "text", "-f", "markdown=summary.md"]) == 1
    assert "MP006" in capfd.readouterr().out
    _, first, *_ = (tmp_path / "summary.md").read_text().splitlines()
    assert "1 of 1 failed: model on t4 grew by" in first
    assert "most in 0.up at model.py:15" in first
