"""A small project on disk, and the gate run on it as a user would."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODEL = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def model():
    return nn.Sequential(*[Block(256) for _ in range(BLOCKS)])


def batch(batch_size):
    return torch.randn(batch_size, 256)


def loss(output, batch):
    return output.sum()
"""
PROJECT = """
gpus = ["t4"]
baseline = "baseline.json"

[[job]]
name = "small"
target = "model.py"
batch-size = 4096
max-increase = "2%"
"""


def write_project(folder: Path, *, blocks: int = 2, project: str = PROJECT) -> None:
    (folder / "model.py").write_text(MODEL.replace("BLOCKS", str(blocks)))
    (folder / "memplan.toml").write_text(project)


def memplan(folder: Path, *words: str, prefix: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder, its cache in ``cache`` there."""
    return subprocess.run(
        [sys.executable, "-c", prefix + COMMAND, *words],
        cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


COMMAND = "import sys\nfrom memplan.cli.app import main\nsys.exit(main())"


def environment(folder: Path) -> dict[str, str]:
    own = {"PYTHONPATH": str(ROOT), "MEMPLAN_CACHE_DIR": str(folder / "cache"), "COLUMNS": "80", "NO_COLOR": "1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MEMPLAN_")}
    return kept | own
