"""Where data decide how much memory a small job takes, they are asked: its first steps run for real."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.local import estimate_here
from memplan.measure.measurer import trace_for
from memplan.measure.records import Estimate
from memplan.tracing import heard as heard_module
from memplan.tracing import rehearsal
from memplan.tracing.heard import STEPS, Heard, is_small
from tests.tracing.real_memory import peak, real_allocations

_FLAT = """
import torch
def model(): return torch.nn.Linear(256, 256)
def batch(batch_size): return torch.zeros(batch_size, 256)
def optimizer(parameters): return torch.optim.LBFGS(parameters, max_iter=4, history_size=8)
def train_step(model, optimizer, batch):
    def closure():
        optimizer.zero_grad()
        value = (model(batch) * 1e-12).sum()
        value.backward()
        return value
    optimizer.step(closure)
"""
_SELECTING = """
import torch
class Selecting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 512)
    def forward(self, x): return self.layer(x[x[:, 0] > 1.5]).sum() + x.sum()
def model(): return Selecting()
def batch(batch_size): return torch.randn(batch_size, 32)
def loss(output, batch): return output.square()
"""
_ROUNDS = """
import torch
class Settling(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(64) / 2)
            self.layer.bias.zero_()
    def forward(self, x):
        while x.norm() > 1e-3:
            x = self.layer(x)
        return x.sum()
def model(): return Settling()
def batch(batch_size): return torch.ones(batch_size, 64)
def loss(output, batch): return output.square()
def optimizer(parameters): return torch.optim.SGD(parameters, lr=0.0)
"""


def estimated(path: Path, batch_size: int = 64) -> Estimate:
    job = JobSpec(target=FileTarget(path=path), batch_size=batch_size)
    (answer,) = estimate_here(job, [load_profile("cpu")], advice=False)
    return answer


def really(path: Path, batch_size: int = 64) -> int:
    """The peak of as many steps as the prediction hears."""

    def run() -> object:
        torch.manual_seed(0)
        program: dict[str, Any] = {}
        exec(path.read_text(), program)
        model = program["model"]()
        make = program.get("optimizer", torch.optim.AdamW)
        optimizer = make(model.parameters())
        output = loss = None
        for _ in range(STEPS):
            batch = program["batch"](batch_size)
            if "train_step" in program:
                program["train_step"](model, optimizer, batch)
                continue
            output = model(batch)
            loss = program["loss"](output, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return output, loss

    return peak(real_allocations(run))


@pytest.mark.parametrize("text", [_FLAT, _SELECTING, _ROUNDS])
def test_data_decide_as_they_do_in_a_real_run(text: str, tmp_path: Path) -> None:
    path = tmp_path / "asking.py"
    path.write_text(text)
    answer, real = estimated(path), really(path)
    assert answer.peak.requested_bytes == pytest.approx(real, rel=0.005)
    assert answer.peak.low_bytes <= real <= answer.peak.high_bytes
    assert any("ran for real" in sentence for sentence in answer.assumptions)


_LOOKING = """
import torch, pathlib
class Looking(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 512)
    def forward(self, x):
        if type(x) is torch.Tensor:
            {really}
        return self.layer(x[x[:, 0] > 1.5]).sum() + x.sum()
def model(): return Looking()
def batch(batch_size): return torch.randn(batch_size, 32)
def loss(output, batch): return output.square()
"""


def test_a_run_that_fails_leaves_the_likely_way(tmp_path: Path) -> None:
    path = tmp_path / "looking.py"
    path.write_text(_LOOKING.format(really="raise RuntimeError('not here')"))
    answer = estimated(path)
    assert not any("ran for real" in sentence for sentence in answer.assumptions)
    assert any("take every element" in sentence for sentence in answer.assumptions)


def test_a_large_job_is_not_run(tmp_path: Path) -> None:
    path, ran = tmp_path / "looking.py", tmp_path / "ran"
    path.write_text(_LOOKING.format(really=f"pathlib.Path({str(ran)!r}).touch()"))
    estimated(path, batch_size=600_000)
    assert not ran.exists()
    estimated(path)
    assert ran.exists()


_ENDLESS = """
import torch
class Endless(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        kept = x[x[:, 0] > 1.5]
        while type(x) is torch.Tensor and self.calls > 3:
            pass
        return self.layer(kept).sum() + x.sum()
def model(): return Endless()
def batch(batch_size): return torch.randn(batch_size, 8)
def loss(output, batch): return output.square()
"""


def test_a_step_that_does_not_end_leaves_those_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "CPU_SECONDS", 3)
    path = tmp_path / "endless.py"
    path.write_text(_ENDLESS)
    answer = estimated(path)
    assert answer.steps_traced == 3
    assert any("ran for real" in sentence for sentence in answer.assumptions)


def test_random_numbers_go_on_as_if_nothing_had_run(tmp_path: Path) -> None:
    path = tmp_path / "selecting.py"
    path.write_text(_SELECTING)
    torch.manual_seed(7)
    random.seed(7)
    before = torch.get_rng_state(), random.getstate()
    estimated(path)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()


def test_answers_come_in_the_order_in_which_they_were_heard() -> None:
    here, there = ("a.py", 1, 0), ("a.py", 2, 0)
    heard = Heard()
    heard.write(here, 3)
    heard.begin_step()
    for place, answer in ((here, True), (there, 2.5), (here, False)):
        heard.write(place, answer)

    assert heard.last == '[["a.py", 1, 0, [true, false]], ["a.py", 2, 0, [2.5]]]'
    heard = Heard.of(['[["a.py", 1, 0, [3]]]', heard.last])
    reader = heard.again()
    assert (reader.read(here), reader.read(here), reader.read(there)) == (3, None, None)
    reader.begin_step()
    assert [reader.read(here), reader.read(here), reader.read(here), reader.read(there)] == [True, False, None, 2.5]
    assert heard.steps == 1
    assert heard.again().read(here) == 3


def test_micro_batches_that_were_not_traced_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else ``recommend``, which traces a few, would hear a job that ``estimate`` does not."""
    path = tmp_path / "selecting.py"
    path.write_text(_SELECTING)
    few = JobSpec(target=FileTarget(path=path), batch_size=8, grad_accum=40, few_micro_batches=True)
    traces = {
        spec.few_micro_batches: trace_for(spec, load_profile("cpu"))
        for spec in (few, replace(few, few_micro_batches=False))
    }
    assert len(traces[True].ops) < len(traces[False].ops) / 4
    monkeypatch.setattr(heard_module, "MOST_OPS", len(traces[False].ops) // 2)
    assert [is_small(few, trace, 0) for trace in traces.values()] == [False, False]
