"""The largest batch of a real model, against tracing every batch."""

from dataclasses import replace
from pathlib import Path

import pytest

from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.local import estimate_here
from memplan.measure.measurer import measuring
from memplan.plan.batch.compose import largest_batches
from memplan.plan.batch.flow import largest_here

MODEL = """
import torch

def model():
    return torch.nn.Sequential(torch.nn.Linear(256, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 256))

def batch(batch_size):
    return torch.randn(batch_size, 1024, 256)

def loss(output, batch):
    return output.float().mean()
"""


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    path = tmp_path / "wide.py"
    path.write_text(MODEL, encoding="utf-8")
    return JobSpec(target=FileTarget(path=path))


def test_one_more_does_not_fit(job: JobSpec) -> None:
    profile = replace(load_profile("rtx-3060"), usable_bytes=2 << 30)
    with measuring() as measurer:
        answer = largest_here(job, profile, measurer)
    assert answer.ended in ("exact", "confirmed")
    peaks = [
        estimate_here(replace(job, batch_size=batch), [profile], advice=False)[0]
        for batch in (answer.value, answer.value + 1)
    ]
    assert [peak.verdict == "fits" for peak in peaks] == [True, False]
    assert [answer.device_bytes, answer.next_device_bytes] == [peak.peak.device_bytes for peak in peaks]
    assert len(answer.traced) <= 6


@pytest.mark.slow
def test_the_curve_is_what_traces_of_its_points_say(job: JobSpec) -> None:
    profile = replace(load_profile("rtx-3060"), usable_bytes=2 << 30)
    small = replace(profile, usable_bytes=1 << 30)
    answer, other = largest_batches(job, (profile, small))
    assert other.value < answer.value
    assert [point.value for point in answer.curve if not point.fits] == [answer.value + 1]
    assert {point.value for point in answer.curve if point.traced} <= set(answer.traced)
    # Where nothing was traced, a kernel's scratch may be another than any trace foretells: those points say so.
    for point in (each for each in answer.curve if each.traced):
        (alone,) = estimate_here(replace(job, batch_size=point.value), [profile], advice=False)
        assert point.device_bytes == alone.peak.device_bytes


@pytest.mark.slow
def test_the_call_runs_in_a_child_and_leaves_the_room_asked_for(job: JobSpec) -> None:
    profile = replace(load_profile("rtx-3060"), usable_bytes=2 << 30)
    [answer] = largest_batches(job, (profile,), utilization="conservative")
    assert answer.device_bytes <= 0.85 * (2 << 30) < answer.next_device_bytes


POSITIONS = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = torch.nn.Embedding(POSITIONS, 8)
        self.head = torch.nn.Linear(8, 8)

    def forward(self, tokens):
        return self.head(self.positions(torch.arange(tokens.shape[1], device=tokens.device)))

def model():
    return Model()

def batch(batch_size, seq_len=16):
    return torch.randint(8, (batch_size, seq_len))

def loss(output, batch):
    return output.sum()
"""


def test_a_length_that_the_model_has_no_positions_for_is_not_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "positions.py"
    path.write_text(POSITIONS.replace("POSITIONS", "64"), encoding="utf-8")
    spec = JobSpec(target=FileTarget(path=path), seq_len=16)
    with measuring() as measurer:
        answer = largest_here(spec, load_profile("rtx-3060"), measurer, variable="seq_len")
    assert (answer.value, answer.ended, answer.next_device_bytes) == (64, "refused", None)
    assert "index out of range in self: 64, in an embedding of 64" in answer.refused
