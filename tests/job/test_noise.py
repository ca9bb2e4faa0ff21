"""Standard error is for memplan and the user's own code: warnings of libraries stay away from it."""

import warnings
from pathlib import Path

import pytest

from memplan.cli.app import main
from memplan.job.noise import hushed

TARGET = """
import logging, warnings
import torch

def library(code):
    # A function whose code lies in an installed package, as Python's machinery sees it.
    names = {"warnings": warnings, "log": logging.getLogger("some.library")}
    exec(compile(code, "/usr/lib/python3/site-packages/library/code.py", "exec"), names)

def model():
    library("warnings.warn('a library warns')")
    library("log.warning('a library logs')")
    warnings.warn("mine is shown")
    logging.getLogger("my.own").warning("mine is logged")
    return torch.nn.Linear(2, 2)

def batch(batch_size):
    return torch.randn(batch_size, 2)

def loss(output, batch):
    return output.sum()
"""


def test_warnings_of_libraries_do_not_reach_standard_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MEMPLAN_DEBUG", raising=False)
    path = tmp_path / "target.py"
    path.write_text(TARGET, encoding="utf-8")
    assert main(["estimate", str(path), "--gpu", "t4", "--quiet"]) == 0
    said = capfd.readouterr().err
    assert "mine is shown" in said
    assert "mine is logged" in said
    assert "a library" not in said


def test_the_command_itself_passes_no_warning_of_a_library_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMPLAN_DEBUG", raising=False)
    shown: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_: shown.append(str(message))
        with hushed():
            warnings.warn_explicit("a library warns", UserWarning, "/usr/lib/site-packages/joblib/parallel.py", 3)
            warnings.warn_explicit("mine", UserWarning, "/home/me/train.py", 3)
    assert shown == ["mine"]


PROGRAM = """
import os, sys
import torch
print("from Python")
sys.stderr.write("a bar\\n")
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.AdamW(model.parameters())
while True:
    loss = model(torch.randn(8, 4).cuda())
    if loss.sum() > 0:
        loss = loss.relu()
    loss.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_what_a_program_prints_is_seen_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A condition that data decide has it run a second time."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    said = {}
    for debug in ("0", "1"):
        monkeypatch.setenv("MEMPLAN_DEBUG", debug)
        assert main(["estimate", str(path), "--gpu", "t4", "--no-cache", "--quiet"]) == 0
        said[debug] = capfd.readouterr().err
    assert said["0"].count("from Python") == said["0"].count("a bar") == 1
    assert said["1"].count("from Python") == said["1"].count("a bar") > 1
