"""One traced job and one browser for all tests of a process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from memplan.hardware.catalog import load_profile
from memplan.job.spec import JobSpec
from memplan.job.target import parse_target
from memplan.measure.local import record_here
from memplan.measure.records import RecordedEstimate
from memplan.report.html.estimate import render
from tests.report.html.chromium import CHROMIUM, Chromium

TARGET = """
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(1024, 4096)
        self.down = torch.nn.Linear(4096, 1024)

    def forward(self, x):
        return x + self.down(self.up(x).relu())

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(4))
        self.head = torch.nn.Linear(1024, 8)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)

def model():
    return Net()

def batch(batch_size):
    return torch.randn(batch_size, 1024)

def loss(output, batch):
    return output.square().mean()
"""


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[RecordedEstimate, ...]:
    """A small network on two GPUs, with digests."""
    file = tmp_path_factory.mktemp("target") / "net.py"
    file.write_text(TARGET)
    profiles = [load_profile("h100-80g"), load_profile("rtx-3070")]
    return record_here(JobSpec(target=parse_target(str(file)), batch_size=512), profiles, whole=False)


@pytest.fixture(scope="session")
def page(recorded: tuple[RecordedEstimate, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of one GPU."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(render(recorded[:1]), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A browser; tests of it skip where there is none."""
    if not CHROMIUM:
        pytest.skip("no Chromium: set MEMPLAN_CHROMIUM")
    browser = Chromium(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
