"""Emitted code traced as a user's target: the peak is the predicted one, to the byte."""

import json
from pathlib import Path
from typing import Any

import pytest

from memplan.emit.formats import emit
from memplan.hardware.catalog import load_profile
from memplan.job.adapters import Lora
from memplan.job.parallel import parse_parallel
from memplan.job.setup_file import Prediction, make_setup
from memplan.job.spec import FileTarget, HubTarget, JobSpec
from memplan.measure.local import estimate_here
from memplan.units import Bytes
from tests.emit.files import written

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
    return nn.Sequential(*(Block() for _ in range(2)))


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
import net
import torch
from net import batch, loss


def model():
    with torch.device("meta"):
        return net.model()


def parallelize(model, mesh):
    return fsdp2.shard(model).to_empty(device=HOME)


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
from memplan.tracing.sharding.materialise import on_meta

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
TORCH_OF_A_LIBRARY = """
from pathlib import Path
from types import SimpleNamespace

import torch
import train_setup
from memplan.job.load import load_source
from memplan.job.spec import HubTarget, JobSpec

source = load_source(JobSpec(target=HubTarget(location=str(Path(__file__).parent))))
kept = {}


def model():
    return train_setup.set_up(source.model())


def batch(batch_size):
    kept["size"] = batch_size
    return torch.empty(0)


def optimizer(parameters):
    found = list(parameters)
    return train_setup.make_optimizer(SimpleNamespace(parameters=lambda: found), 1e-4)


def loss(model, batch):
    kept.pop("batch", None)
    kept["batch"] = {name: value.to("cuda") for name, value in batch.items()}
    kept["output"] = model(**kept["batch"])
    kept["loss"] = kept["output"].loss
    return kept["loss"]


def train_step(model, optimizer, batch):
    train_setup.train(model, optimizer, [(source.batch(kept["size"], 256) for _ in range(1))], loss)
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
        {"optimizer_in_backward": True, "precision": "bf16-mixed"},
        {"optimizer_in_backward": True, "offload_activations": True, "checkpoint": "full"},
        {"offload_activations": True, "precision": "bf16-mixed", "grad_accum": 2},
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
    """As its own words advise: built without memory, ``to_empty`` once it is shared."""
    typed = {"parallel": parse_parallel(parallel)}
    target = FSDP2.replace("HOME", '"cpu"' if "offload" in parallel else '"cuda"')
    predicted_and_again("fsdp2", target, tmp_path, typed, **changes, **typed)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer_in_backward": True},
        {"offload_activations": True, "precision": "bf16-mixed"},
        {"offload_activations": True, "optimizer_in_backward": True, "checkpoint": "full"},
    ],
    ids=",".join,
)
def test_fsdp2_frees_gradients_and_activations_as_it_goes(changes: dict[str, Any], tmp_path: Path) -> None:
    typed = {"parallel": parse_parallel("fsdp=4")}
    predicted_and_again("fsdp2", FSDP2.replace("HOME", '"cuda"'), tmp_path, typed, **changes, **typed)


def test_fsdp2_of_a_model_that_has_memory(tmp_path: Path) -> None:
    """A small one, whose blocks leave the allocator as they would be otherwise."""
    typed = {"parallel": parse_parallel("fsdp=4")}
    has_memory = FSDP2.replace('with torch.device("meta"):', "if True:").replace(".to_empty(device=HOME)", "")
    predicted_and_again("fsdp2", has_memory, tmp_path, typed, precision="bf16-mixed", **typed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "fp32", "checkpoint": "full"},
        {"precision": "bf16-mixed", "checkpoint": "full"},
        {"precision": "bf16-mixed", "loss_chunks": 4},
    ],
    ids=lambda changes: ",".join(map(str, changes.values())),
)
def test_fsdp2_of_a_library(changes: dict[str, Any], tmp_path: Path) -> None:
    """Checkpointed by itself, a block is gathered again inside of what is run again."""
    parallel = parse_parallel("fsdp=4")
    predicted_and_again_of_a_library("fsdp2", OF_A_LIBRARY, tmp_path, {"parallel": parallel}, **changes)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft asks for it.
@pytest.mark.parametrize("lora", [None, Lora(rank=4, alpha=8, targets=("all-linear",))], ids=["full", "lora"])
def test_plain_torch_of_a_library_makes_its_logits_in_parts(lora: Lora | None, tmp_path: Path) -> None:
    if lora is not None:
        pytest.importorskip("peft")
    predicted_and_again_of_a_library("torch", TORCH_OF_A_LIBRARY, tmp_path, {}, loss_chunks=4, lora=lora)


def predicted_and_again_of_a_library(to: str, target: str, folder: Path, typed: dict[str, Any], **changes: Any) -> None:
    """Both traced, of a small Llama; they have to be the same."""
    transformers = pytest.importorskip("transformers")
    transformers.LlamaConfig(
        vocab_size=8192, hidden_size=512, intermediate_size=1536, num_hidden_layers=2, num_attention_heads=4
    ).save_pretrained(folder)
    (folder / "config.json").write_text(
        json.dumps(json.loads((folder / "config.json").read_text()) | {"architectures": ["LlamaForCausalLM"]})
    )
    spec = JobSpec(target=HubTarget(location=str(folder)), batch_size=4, seq_len=256, **changes, **typed)
    expected = peaks(spec)
    device, reserved, allocated = map(Bytes, expected)
    predicted = Prediction(device_bytes=device, reserved_bytes=reserved, allocated_bytes=allocated)
    written(emit(make_setup(spec, "h100-80g", predicted), to), folder)
    (folder / "target.py").write_text(target)
    assert peaks(JobSpec(target=FileTarget(path=folder / "target.py"), batch_size=4, **typed)) == expected
