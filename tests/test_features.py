"""Every command of docs/features.md, as it stands there, in a folder with two models, a program and prices."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from memplan.cli.app import main
from tests.runtime.numa.machines import DGX_H100, QUAD, build
from tests.support.targets import NET

PAGE = Path(__file__).parents[1] / "docs" / "features.md"
ROW = re.compile(
    r"^\| (?P<feature>[^|]+) \| `(?P<command>(?:memplan|python) [^`]+)` \| (?P<answer>[^|]*) \|$", re.MULTILINE
)
FOUND = [(row["feature"], row["command"], row["answer"].strip()) for row in ROW.finditer(PAGE.read_text("utf-8"))]
ROWS = [pytest.param(command, answer, id=feature) for feature, command, answer in FOUND]
LANGUAGE_MODEL = """
import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(500, 64)
        self.mix = nn.Linear(64, 192)
        self.head = nn.Linear(64, 500)

    def forward(self, tokens):
        query, key, value = self.mix(self.embed(tokens)).unflatten(-1, (3, 4, 16)).transpose(1, 3).unbind(2)
        return self.head(functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


def model():
    return Model()


def batch(batch_size, seq_len=32):
    return torch.randint(500, (batch_size, seq_len))


def loss(output, batch):
    return functional.cross_entropy(output.flatten(0, 1), batch.flatten())
"""
PROGRAM = """
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=16)
width = parser.parse_args().width
model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(1000):
    optimizer.zero_grad()
    loss = model(torch.randn(32, 8, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
"""
POOLED = """
class MemoryPool:
    def allocate(self, size): ...


def get_global_memory_pool():
    return MemoryPool()
"""


PRICES = """
currency = "EUR"
t4 = 0.35
rtx-4090 = 0.69
h100-80g = 2.99
"""


def test_the_page_has_commands() -> None:
    assert len(FOUND) > 20
    assert all(answer or "audit" in command for _, command, answer in FOUND)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "answer"), ROWS)
def test_a_command_of_the_page(
    command: str,
    answer: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPLAN_CACHE_DIR", str(tmp_path / "cache"))
    files = {"model.py": NET, "lm.py": LANGUAGE_MODEL, "train.py": PROGRAM, "pooled.py": POOLED, "prices.toml": PRICES}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for name, machine in {"two-nodes": DGX_H100, "four-nodes": QUAD}.items():
        build(tmp_path / name, machine)
    program, *words = shlex.split(command)
    if program == "python":
        ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
        code, out, err = ended.returncode, ended.stdout, ended.stderr
    else:
        code = main(words)
        out, err = capsys.readouterr()
    assert code == 0, err
    assert answer.lower() in out.lower()
