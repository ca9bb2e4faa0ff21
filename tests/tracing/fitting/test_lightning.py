"""LightningModules as targets: trained by Lightning's Trainer, beside a program that says the same, and real runs."""

from pathlib import Path

import pytest
import torch

from memplan.errors import UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, JobSpec, ScriptTarget
from memplan.measure.local import estimate_here
from memplan.measure.records import Estimate
from memplan.validate.run import run_here
from tests.support.libraries import library

lightning = library("lightning.pytorch")
if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7):
    pytest.skip("Lightning does not begin under this torch", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore")

NET = """
import torch
from torch import nn
import lightning.pytorch as pl

class LitNet(pl.LightningModule):
    def __init__(self, width=256):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
    def forward(self, x):
        return self.net(x)
    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 10)]

def batch(batch_size):
    return torch.randn(batch_size, 64), torch.randint(10, (batch_size,))
"""
BY_HAND = NET.replace("def training_step", "automatic_optimization = False\n    def training_step").replace(
    "return loss", "o = self.optimizers(); o.zero_grad(); self.manual_backward(loss); o.step()"
)
OWN_DATA = (
    NET.replace("def batch(", "def unused(")
    + """
def own_data(module):
    data = torch.utils.data.TensorDataset(torch.zeros(8192, 64), torch.zeros(8192).long())
    return torch.utils.data.DataLoader(data, batch_size=128)
LitNet.train_dataloader = own_data
"""
)
PROGRAM = """
import sys
from lit_net import *
class Batches:
    def __len__(self):
        return 10**6
    def __iter__(self):
        while True:
            yield batch(128)
pl.Trainer(accelerator=sys.argv[1], devices=1, max_epochs=-1, logger=False, enable_checkpointing=False,
           enable_progress_bar=False, enable_model_summary=False, limit_val_batches=0).fit(LitNet(512), Batches())
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def job(text: str = NET, factory: str = "LitNet(width=512)", **options: object) -> JobSpec:
    Path("lit_net.py").write_text(text)
    return JobSpec(target=FileTarget(path=Path("lit_net.py"), factory=factory), batch_size=128, **options)  # type: ignore[arg-type]


def estimated(spec: JobSpec, gpu: str) -> Estimate:
    [result] = estimate_here(spec, [load_profile(gpu)], advice=False)
    return result


@pytest.mark.parametrize("gpu", ["cpu", "t4"])
def test_a_module_needs_what_a_program_needs_that_fits_it(gpu: str) -> None:
    module = estimated(job(), gpu)
    Path("train.py").write_text(PROGRAM)
    target = ScriptTarget(path=Path("train.py"), arguments=("cpu" if gpu == "cpu" else "gpu",))
    program = estimated(JobSpec(target=target), gpu)
    assert module.peak.requested_bytes == program.peak.requested_bytes
    assert module.options["optimizer"] == "own SGD"
    assert any("configure_optimizers" in sentence for sentence in module.assumptions)


@pytest.mark.slow
@pytest.mark.parametrize("text", [NET, BY_HAND, OWN_DATA], ids=["automatic", "by hand", "its own data"])
@pytest.mark.parametrize(
    "options", [{}, {"grad_accum": 3}, {"clip_grad_norm": 1.0}, {"optimizer": "adamw"}], ids=lambda given: str(*given)
)
def test_a_real_fit_takes_what_is_predicted(text: str, options: dict[str, object]) -> None:
    if text == BY_HAND and options.keys() & {"grad_accum", "clip_grad_norm"}:
        pytest.skip("Lightning refuses both where a module steps by itself")
    spec = job(text, **options)
    predicted = estimated(spec, "cpu").peak.requested_bytes
    measured = run_here(spec, device="cpu", steps=3, traced_steps=3, seconds=60).measured.peaks.requested
    assert measured == pytest.approx(predicted, abs=64)


def test_what_lightning_decides_is_refused() -> None:
    with pytest.raises(UsageError, match="--keep-gradients would change nothing"):
        estimated(job(keep_gradients=True), "t4")


def test_without_batches_its_step_is_left_aside() -> None:
    answer = estimated(job(NET.replace("def batch", "def unused")), "t4")
    assert any("training_step is left aside" in sentence for sentence in answer.assumptions)
