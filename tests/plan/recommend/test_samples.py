"""Work that goes by samples: twice as much for twice the samples, whatever else a step does."""

from dataclasses import replace
from pathlib import Path

import pytest

from memplan.hardware.catalog import load_profile
from memplan.job.parallel import Parallel
from memplan.job.spec import FileTarget, JobSpec
from memplan.lifetime.records import Lifetimes
from memplan.measure.measurer import measuring
from memplan.plan.recommend.floors import MemoryFloor, floor_of
from memplan.timing.clock import step_time
from memplan.timing.rates import Rates

PROFILE = load_profile("rtx-3060")
DEEP = """
import torch
from torch import nn
def model():
    return nn.Sequential(*[nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU()) for _ in range(3)])
def batch(batch_size):
    return torch.randn(batch_size, 64, 64)
def loss(output, batch):
    return output.float().square().mean()
"""
OF_WEIGHTS = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.randn(64, 64)), nn.Parameter(torch.randn(64, 64))
    def forward(self, x):
        return x @ (self.first @ self.second)
def model():
    return Model()
def batch(batch_size):
    return torch.randn(batch_size, 64)
"""


JOBS: tuple[dict[str, object], ...] = (
    {},
    {"precision": "bf16-mixed"},
    {"optimizer": "sgd"},
    {"parallel": Parallel(data="fsdp2", shards=2)},
)


def _lifetimes(folder: Path, text: str, **fields: object) -> tuple[JobSpec, Lifetimes]:
    path = folder / "target.py"
    path.write_text(text, encoding="utf-8")
    spec = replace(JobSpec(target=FileTarget(path=path)), **fields)  # type: ignore[arg-type]
    with measuring() as measurer:
        (measured,) = measurer.ranks(spec, PROFILE)
    return spec, measured.lifetimes


def _floor(lifetimes: Lifetimes) -> MemoryFloor:
    return floor_of(lifetimes, Rates.of(PROFILE, "fp32"))


@pytest.mark.parametrize("fields", JOBS, ids=str)
def test_twice_the_samples_are_twice_the_work(fields: dict[str, object], tmp_path: Path) -> None:
    one, two = (_floor(_lifetimes(tmp_path, DEEP, batch_size=size, **fields)[1]) for size in (4, 8))
    assert two.sample_seconds == pytest.approx(2 * one.sample_seconds, rel=1e-3)
    assert two.products == 2 * one.products
    assert not one.has_fixed_products


@pytest.mark.parametrize("fields", JOBS, ids=str)
def test_it_is_part_of_what_the_step_computes(fields: dict[str, object], tmp_path: Path) -> None:
    spec, lifetimes = _lifetimes(tmp_path, DEEP, batch_size=64, **fields)
    time = step_time(lifetimes.trace, spec, PROFILE)
    # Most of a step of large batches, and never the update.
    assert 0.5 * time.compute < _floor(lifetimes).sample_seconds <= time.compute - time.optimizer


def test_products_of_weights_alone_are_seen(tmp_path: Path) -> None:
    _, lifetimes = _lifetimes(tmp_path, OF_WEIGHTS, batch_size=4)
    assert _floor(lifetimes).has_fixed_products
