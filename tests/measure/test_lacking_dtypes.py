"""A step in a dtype that the GPU does not have: every report says so."""

from pathlib import Path

import pytest
import torch

from memplan.hardware.catalog import load_profile
from memplan.job.spec import JobSpec
from memplan.job.target import parse_target
from memplan.measure.advice import single_changes
from memplan.measure.local import estimate_here
from memplan.measure.records import Estimate
from memplan.report.estimate.text import render
from memplan.tracing.dtypes import WITHOUT, lacking
from memplan.tracing.records import DeviceTraits

TARGET = """
import torch

def model():
    return torch.nn.Linear(64, 64)

def batch(batch_size):
    return torch.randn(batch_size, 64)

def loss(output, batch):
    return output.sum()
"""
OWN = (
    TARGET
    + """
def train_step(model, optimizer, batch):
    with torch.autocast("cuda", torch.bfloat16):
        model(batch).sum().backward()
"""
)


def estimated(folder: Path, gpu: str, text: str = TARGET, **options: object) -> Estimate:
    (folder / "net.py").write_text(text)
    spec = JobSpec(target=parse_target(str(folder / "net.py")), batch_size=8, **options)
    (found,) = estimate_here(spec, [load_profile(gpu)], advice=False)
    return found


@pytest.mark.parametrize(
    ("gpu", "options", "said"),
    [
        ("t4", {"precision": "bf16"}, True),
        ("t4", {"precision": "bf16-mixed"}, True),
        ("v100-32g", {"precision": "bf16", "mode": "inference"}, True),
        ("t4", {"text": OWN}, True),
        ("t4", {"precision": "fp16-mixed"}, False),
        ("a100-40g", {"precision": "bf16"}, False),
        ("mi300x", {"precision": "bf16"}, False),
        ("cpu", {"precision": "bf16"}, False),
    ],
)
def test_bfloat16_on_a_gpu_without_it_is_said_in_the_shortest_report(
    tmp_path: Path, gpu: str, options: dict[str, str], said: bool
) -> None:
    found = estimated(tmp_path, gpu, **options)
    assert (WITHOUT["bfloat16"] in found.not_modelled) is said
    assert any("not modelled: bfloat16 on a GPU" in line.plain for line in render([found])) is said


@pytest.mark.parametrize(("gpu", "said"), [("a100-40g", True), ("l4", False), ("h100-80g", False), ("mi300x", False)])
def test_float8_needs_ada_or_later(gpu: str, said: bool) -> None:
    traits = DeviceTraits.of(load_profile(gpu))
    assert bool(lacking(traits, {torch.float32, torch.float8_e4m3fn})) is said
    assert not lacking(traits, {torch.float32})


@pytest.mark.parametrize(("half", "expected"), [("bf16", "--precision bf16-mixed"), ("fp16", "--precision fp16-mixed")])
def test_advice_names_what_the_gpu_has(half: str, expected: str) -> None:
    job = JobSpec(target=parse_target("preset:gpt2"))
    assert expected in [change.text for change in single_changes(job, half)]
