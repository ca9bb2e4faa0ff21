"""Targets that keep state between traces, and what the answer says of a target's own optimizer and step."""

from pathlib import Path

import pytest

from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, JobSpec, ModuleTarget, Target
from memplan.measure.local import estimate_here
from memplan.measure.records import Estimate

STEP = """import torch
from torch import nn
net = nn.Linear(64, 64).cuda()
def model():
    return net
def batch(batch_size):
    return torch.randn(batch_size, 64)
def train_step(model, optimizer, batch):
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
OWN = STEP.replace("    optimizer.step()", "    torch.optim.Adagrad(model.parameters()).step()")
TWO = STEP.replace("    optimizer.step()", "    torch.optim.Adagrad(model.parameters()).step()\n    optimizer.step()")
NONE = STEP.replace("    optimizer.step()", "    for each in model.parameters():\n        each.data -= 0.1 * each.grad")
DUCK = (
    STEP[: STEP.index("def train_step")]
    + """
def loss(output, batch):
    return output.sum()
class Signs:
    def __init__(self, parameters):
        self.parameters = list(parameters)
    def step(self):
        for each in self.parameters:
            each.data -= 0.1 * each.grad.sign()
    def zero_grad(self):
        for each in self.parameters:
            each.grad = None
def optimizer(parameters):
    return Signs(parameters)
"""
)
OPTIMIZER = "def optimizer(parameters):\n    return torch.optim.SGD(parameters, lr=0.1)\n"


def answers(target: Target, *gpus: str, **options: object) -> tuple[Estimate, ...]:
    spec = JobSpec(target=target, provenance={"optimizer": "default"}, **options)
    return estimate_here(spec, [load_profile(gpu) for gpu in gpus], advice=False)


def test_a_module_is_imported_anew_for_each_kind_of_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tensors belong to the trace in which they were made."""
    (tmp_path / "memplan_kept_target.py").write_text(STEP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    target = ModuleTarget(module="memplan_kept_target", factory="model")
    sizes = {answer.breakdown["parameter"] for answer in answers(target, "t4", "rtx-4090")}
    assert sizes == {(64 * 64 + 64) * 4}


@pytest.mark.parametrize(
    ("text", "options", "shown"),
    [
        (STEP, {}, "adamw"),
        (STEP, {"optimizer": "sgd"}, "sgd"),
        (STEP + OPTIMIZER, {}, "own SGD"),
        (STEP + OPTIMIZER, {"optimizer": "adam"}, "adam"),
        (OWN, {}, "own Adagrad"),
        (TWO, {}, "own Adagrad + adamw"),
        (NONE, {}, "no torch optimizer"),
        (DUCK, {}, "own optimizer"),
    ],
    ids=["default", "option", "own", "option before own", "in its step", "two", "by hand", "not torch's"],
)
def test_the_optimizer_that_steps_is_named(tmp_path: Path, text: str, options: dict[str, str], shown: str) -> None:
    (tmp_path / "model.py").write_text(text)
    (answer,) = answers(FileTarget(path=tmp_path / "model.py"), "t4", **options)
    assert answer.options["optimizer"] == shown


def test_what_only_training_uses_is_not_said_to_be_read_for_inference(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(STEP + OPTIMIZER)
    target = FileTarget(path=tmp_path / "model.py")
    for mode, is_read in (("train", True), ("inference", False)):
        (answer,) = answers(target, "t4", mode=mode)
        assert ("train_step" in answer.provenance) is is_read
        assert answer.provenance["optimizer"].startswith("default") is not is_read
