"""A folder with a model in it, and programs in that folder that are estimated."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memplan.hardware.catalog import load_profile
from memplan.job.parallel import ALONE, Parallel
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.measure.local import estimate_here
from memplan.measure.records import Estimate

NET = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "net", raising=False)
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


@pytest.fixture
def estimated(folder: Path) -> Callable[..., Estimate]:
    def estimate(text: str, *arguments: str, gpu: str = "h100-80g", parallel: Parallel = ALONE, **job: Any) -> Estimate:
        (folder / "train.py").write_text(text)
        target = ScriptTarget(path=Path("train.py"), arguments=arguments)
        [result] = estimate_here(JobSpec(target=target, parallel=parallel, **job), [load_profile(gpu)], advice=False)
        return result

    return estimate
