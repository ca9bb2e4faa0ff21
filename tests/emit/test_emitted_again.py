"""Emitted code traced as a user's target: the peak is the predicted one, to the byte."""

import json
from pathlib import Path
from typing import Any

import pytest

from memplan.emit.formats import emit
from memplan.estimate.local import estimate_here
from memplan.hardware.catalog import load_profile
from memplan.job.adapters import Lora
from memplan.job.parallel import parse_parallel
from memplan.job.setup_file import Prediction, make_setup
from memplan.job.spec import FileTarget, HubTarget, JobSpec, Precision
from memplan.units import Bytes
from tests.emit.test_what_files_say import written

NET = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512))

    def forward(self, x):
        return x + self.inner(x)


def model():
    return nn.Sequential(*(Block() for _ in range(4)))


def batch(batch_size):
    return torch.randn(batch_size, 64, 512)


def loss(output, batch):
    return output.float().square().mean()
"""
TORCH = """
from types import SimpleNamespace

import net
import torch
import train_setup

kept = {}


def model():
    return train_setup.set_up(net.model())


def batch(batch_size):
    kept["size"] = batch_size
    return torch.empty(0)


def optimizer(parameters):
    found = list(parameters)
    return train_setup.make_optimizer(SimpleNamespace(parameters=lambda: found), 1e-4)


def loss(model, batch):
    kept.pop("batch", None)
    kept["batch"] = batch.to("cuda")
    kept["output"] = model(kept["batch"])
    found = net.loss(kept["output"], kept["batch"])
    if COUNT == 1:
        kept["loss"] = found  # train() holds it until the next step, but here it ends after each.
    return found


def train_step(model, optimizer, batch):
    train_setup.train(model, optimizer, [(MADE for _ in range(COUNT))], loss)
"""
FSDP2 = """
from types import SimpleNamespace

import fsdp2
from net import batch, loss, model


def parallelize(model, mesh):
    return fsdp2.shard(model)


def optimizer(parameters):
    found = list(parameters)
    return fsdp2.make_optimizer(SimpleNamespace(parameters=lambda: found), 1e-4)
"""
OF_A_LIBRARY = """
from pathlib import Path
from types import SimpleNamespace

import fsdp2
from memplan.job.load import load_source
from memplan.job.spec import HubTarget, JobSpec
from memplan.trace.sharding.materialise import on_meta

source = load_source(JobSpec(target=HubTarget(location=str(Path(__file__).parent))))
model = source.model


def batch(batch_size):
    return source.batch(batch_size, 256)


def parallelize(model, mesh):
    with on_meta(model, "cuda"):
        fsdp2.shard(model)


def optimizer(parameters):
    found = list(parameters)
    return fsdp2.make_optimizer(SimpleNamespace(parameters=lambda: found), 1e-4)
"""
LORA = Lora(rank=32, alpha=64, targets=("inner.0", "inner.2"))


def peaks(spec: JobSpec) -> tuple[int, int, int]:
    """Of a device with room."""
    [answer] = estimate_here(spec, [load_profile("h100-80g")], advice=False)
    return answer.peak.device_bytes, answer.peak.reserved_bytes, answer.peak.allocated_bytes


def predicted_and_again(to: str, target: str, folder: Path, typed: dict[str, Any], **changes: Any) -> None:
    """Both traced; they have to be the same."""
    (folder / "net.py").write_text(NET)
    spec = JobSpec(target=FileTarget(path=folder / "net.py"), batch_size=16, **changes)
    expected = peaks(spec)
    device, reserved, allocated = map(Bytes, expected)
    predicted = Prediction(device_bytes=device, reserved_bytes=reserved, allocated_bytes=allocated)
    written(emit(make_setup(spec, "h100-80g", predicted), to), folder)
    (folder / "target.py").write_text(target)
    assert peaks(JobSpec(target=FileTarget(path=folder / "target.py"), batch_size=16, **typed)) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"precision": "bf16", "checkpoint": "full"},
        {"precision": "bf16-mixed", "grad_accum": 3, "optimizer_impl": "fused"},
        {"precision": "fp16-mixed", "clip_grad_norm": 1.0, "optimizer": "sgd-momentum"},
        {"optimizer": "adafactor", "grad_accum": 2, "clip_grad_norm": 0.5, "checkpoint": "full"},
        {"precision": "bf16", "lora": LORA, "checkpoint": "full"},
        {"precision": "bf16-mixed", "lora": LORA},
    ],
    ids=lambda changes: ",".join(changes) or "plain",
)
def test_plain_torch(changes: dict[str, Any], tmp_path: Path) -> None:
    if "lora" in changes:
        pytest.importorskip("peft")
    half = changes.get("precision") == "bf16"
    made = f"net.batch(kept['size']){'.to(torch.bfloat16)' if half else ''}"
    count = str(changes.get("grad_accum", 1))
    predicted_and_again("torch", TORCH.replace("MADE", made).replace("COUNT", count), tmp_path, {}, **changes)


@pytest.mark.parametrize("parallel", ["fsdp=4", "fsdp=4,reshard=no", "fsdp=4,offload=yes", "hsdp=2x2"])
@pytest.mark.parametrize(
    "changes",
    [{"precision": "bf16-mixed", "checkpoint": "full"}, {"optimizer_impl": "fused"}],
    ids=["mixed", "fused"],
)
def test_fsdp2(changes: dict[str, Any], parallel: str, tmp_path: Path) -> None:
    typed = {"parallel": parse_parallel(parallel)}
    predicted_and_again("fsdp2", FSDP2, tmp_path, typed, **changes, **typed)


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
def test_fsdp2_of_a_library_that_checkpoints_by_itself(precision: Precision, tmp_path: Path) -> None:
    """There a block is gathered again inside of what is run again."""
    transformers = pytest.importorskip("transformers")
    transformers.LlamaConfig(
        vocab_size=2048, hidden_size=512, intermediate_size=1536, num_hidden_layers=4, num_attention_heads=4
    ).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(
        json.dumps(json.loads((tmp_path / "config.json").read_text()) | {"architectures": ["LlamaForCausalLM"]})
    )
    spec = JobSpec(
        target=HubTarget(location=str(tmp_path)),
        batch_size=4,
        seq_len=256,
        precision=precision,
        checkpoint="full",
        parallel=parse_parallel("fsdp=4"),
    )
    expected = peaks(spec)
    device, reserved, allocated = map(Bytes, expected)
    predicted = Prediction(device_bytes=device, reserved_bytes=reserved, allocated_bytes=allocated)
    written(emit(make_setup(spec, "h100-80g", predicted), "fsdp2"), tmp_path)
    (tmp_path / "target.py").write_text(OF_A_LIBRARY)
    target = FileTarget(path=tmp_path / "target.py")
    assert peaks(JobSpec(target=target, batch_size=4, parallel=spec.parallel)) == expected
