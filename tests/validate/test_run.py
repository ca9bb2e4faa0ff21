"""Real runs on the CPU, in child processes, against predictions of them."""

import dataclasses
from pathlib import Path

import pytest
import torch

from memplan.errors import EstimateError, UsageError
from memplan.job.spec import FileTarget, JobSpec
from memplan.tracing.real_device import RealDevice
from memplan.validate import compose
from memplan.validate.compose import SCALAR_BYTES, Limits, check_room, predict, put_together, run_for_real
from memplan.validate.device import facts_here
from memplan.validate.profiles import profile_for
from memplan.validate.records import DeviceFacts, JobPrediction
from memplan.validate.run import run_here

MODEL = """
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10))

def batch(batch_size):
    return torch.randn(batch_size, 64), torch.randint(10, (batch_size,))

def loss(output, batch):
    return nn.functional.cross_entropy(output, batch[1])
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> JobSpec:
    path = tmp_path_factory.mktemp("target") / "perceptron.py"
    path.write_text(MODEL)
    return JobSpec(target=FileTarget(path=path), batch_size=32)


@pytest.fixture(scope="module")
def facts() -> DeviceFacts:
    return facts_here("cpu")


@pytest.fixture(scope="module")
def prediction(spec: JobSpec, facts: DeviceFacts) -> JobPrediction:
    return predict(spec, profile_for(facts)[0], steps=4)


def test_a_real_run_is_what_was_predicted_event_for_event(
    spec: JobSpec, facts: DeviceFacts, prediction: JobPrediction
) -> None:
    limits = Limits(steps=4, traced_steps=prediction.traced_steps)
    run = run_for_real(spec, facts, limits)
    found = put_together(facts, "profile cpu", prediction, run)
    assert run.steps == 4
    # Weights, gradients and two moments are a floor that does not come from memplan.
    parameters = 64 * 256 + 256 + 2 * 256 + 256 * 10 + 10
    assert run.measured.peaks.requested is not None
    assert run.measured.peaks.requested > 4 * 4 * parameters
    assert found.predicted.requested is not None
    # A Python number is a tensor of 4 or 8 bytes while it is multiplied, on the CPU alone.
    assert abs(found.predicted.requested - run.measured.peaks.requested) <= 2 * SCALAR_BYTES
    assert found.predicted.reserved is None
    assert found.alignment is not None
    assert found.alignment.is_exact
    assert len(run.measured.stream.marks) == 4


def test_running_out_of_memory_is_a_result(tmp_path: Path) -> None:
    path = tmp_path / "greedy.py"
    path.write_text(
        MODEL + "\ncount = []\n"
        "def train_step(model, optimizer, batch):\n"
        "    count.append(0)\n"
        "    if len(count) == 2:\n"
        "        raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 2 GiB')\n"
    )
    run = run_here(JobSpec(target=FileTarget(path=path)), device="cpu", steps=3, traced_steps=2, seconds=60)
    assert run.steps == 1
    assert "Tried to allocate 2 GiB" in run.out_of_memory
    assert run.measured.peaks.requested


def test_user_errors_name_the_users_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(MODEL.replace("batch[1]", "batch[7]"))
    with pytest.raises(EstimateError, match="IndexError") as caught:
        run_here(JobSpec(target=FileTarget(path=path)), device="cpu", steps=1, traced_steps=1, seconds=60)
    assert caught.value.where is not None
    assert "wrong.py:12" in caught.value.where


def test_time_ends_a_run_after_the_traced_steps(spec: JobSpec) -> None:
    run = run_here(spec, device="cpu", steps=50, traced_steps=3, seconds=0)
    assert run.steps == 3


def test_a_tensor_that_stands_twice_in_a_batch_is_moved_once() -> None:
    moved = []

    class Counted(torch.Tensor):
        def to(self, *_: object, **__: object) -> torch.Tensor:
            moved.append(self)
            return self

    tensor = torch.zeros(3).as_subclass(Counted)
    batch = RealDevice(torch.device("cpu")).place_batch(lambda: {"ids": tensor, "labels": tensor, "more": (tensor, 4)})
    assert len(moved) == 1
    assert batch["more"] == (tensor, 4)


def test_a_run_that_does_not_fit_is_refused(prediction: JobPrediction, facts: DeviceFacts) -> None:
    check_room(prediction, facts)
    small = dataclasses.replace(facts, free_bytes=prediction.estimate.peak.high_bytes)
    with pytest.raises(UsageError, match="the run would need up to"):
        check_room(prediction, small)
    with pytest.raises(UsageError, match="building the model takes about"):
        check_room(prediction, dataclasses.replace(facts, host_free_bytes=1 << 20))
    # On a GPU nothing is kept for this process itself.
    on_gpu = dataclasses.replace(facts, kind="cuda", free_bytes=prediction.estimate.peak.high_bytes)
    check_room(prediction, on_gpu)


def test_snapshots_are_for_cuda_alone(
    spec: JobSpec, facts: DeviceFacts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compose, "device_facts", lambda _: facts)
    with pytest.raises(UsageError, match="only a CUDA device"):
        compose.validate(spec, device="cpu", keep=tmp_path / "snapshot.pickle")


@pytest.mark.gpu
def test_a_gpu_does_what_was_predicted(spec: JobSpec) -> None:
    found = compose.validate(spec, device="cuda", steps=3)
    measured = found.run.measured.peaks
    assert found.predicted.requested == measured.requested
    assert found.predicted.allocated == measured.allocated
    assert found.predicted.reserved == measured.reserved
    assert found.alignment is not None
    assert found.alignment.is_exact
    assert found.run.measured.context_bytes
