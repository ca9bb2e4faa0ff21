"""Compiled models that FSDP shards: its hooks run as they are, and what lies between them is Inductor's code."""

from pathlib import Path

import pytest

from memplan.hardware.catalog import load_profile
from memplan.job.parallel import parse_parallel
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.local import estimate_here
from memplan.measure.records import Estimate
from memplan.tracing.inductor.pieces import BUCKETS

pytest.importorskip("triton")
# torch says so of every linear layer whose input has three dimensions.
pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")

MODEL = """
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)
    def forward(self, x):
        return x + self.down(torch.sin(torch.exp(torch.sin(self.up(self.norm(x))))))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(64, 8)
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
def model():
    return Net()
def batch(batch_size):
    return torch.randn(batch_size, 1024, 64)
def loss(output, batch):
    return output.float().square().mean()
"""
BY_BLOCK = """
from torch.distributed.fsdp import fully_shard
def parallelize(model, mesh):
    for block in model.layers:
        block.compile()
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
"""
EAGER = "was traced as eager"
BUFFERED = MODEL.replace(
    "nn.Linear(64, 8)\n", "nn.Linear(64, 8)\n        self.register_buffer('scale', torch.ones(64))\n"
).replace("self.head(x)", "self.head(x * self.scale)")


def answer(folder: Path, text: str = MODEL, **options: object) -> Estimate:
    (folder / "net.py").write_text(text)
    job = {"batch_size": 8, "precision": "bf16", **options}
    spec = JobSpec(target=FileTarget(path=folder / "net.py"), **job)
    return estimate_here(spec, [load_profile("a100-80g")], advice=False)[0]


@pytest.mark.parametrize(
    ("parallel", "checkpoint"),
    [
        ("fsdp=2", "none"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("fsdp=2", "full"), ("fsdp1=2", "none"), ("fsdp1=2", "full"))
        ),
    ],
)
def test_what_lies_between_hooks_is_compiled(tmp_path: Path, parallel: str, checkpoint: str) -> None:
    options = {"parallel": parse_parallel(parallel), "checkpoint": checkpoint}
    eager, compiled = (answer(tmp_path, compile=choice, **options) for choice in ("eager", "inductor"))
    assert not [each for each in compiled.not_modelled if EAGER in each]
    assert compiled.breakdown["parameter"] == eager.breakdown["parameter"]
    if checkpoint == "none":
        # Of each block's chain of elementwise ops Inductor keeps one tensor in place of four.
        assert compiled.breakdown["activation"] < eager.breakdown["activation"]
        assert compiled.peak.allocated_bytes < 0.8 * eager.peak.allocated_bytes
    else:
        assert compiled.peak.allocated_bytes <= eager.peak.allocated_bytes


@pytest.mark.slow
def test_blocks_compiled_and_then_sharded_are_those_of_the_whole_model(tmp_path: Path) -> None:
    options = {"parallel": parse_parallel("fsdp=2"), "compile": "inductor"}
    by_block, whole = answer(tmp_path, MODEL + BY_BLOCK, **options), answer(tmp_path, **options)
    assert by_block.peak.allocated_bytes == pytest.approx(whole.peak.allocated_bytes, rel=0.01)
    assert "between modules that FSDP shards" in " ".join(whole.not_modelled)
    assert "between modules that FSDP shards" not in " ".join(by_block.not_modelled)


def test_ddp_syncs_buffers_and_gradients_around_the_compiled_model(tmp_path: Path) -> None:
    ranks = answer(tmp_path, BUFFERED, compile="inductor", parallel=parse_parallel("ddp=2"))
    alone = answer(tmp_path, BUFFERED, compile="inductor")
    assert not [each for each in ranks.not_modelled if EAGER in each]
    assert BUCKETS in ranks.not_modelled
    # Weights, optimizer state and what is kept for backward are as without it; gradients live in its buckets.
    for category in ("parameter", "optimizer_state", "buffer"):
        assert ranks.breakdown[category] == alone.breakdown[category]
    more = ranks.peak.requested_bytes - alone.peak.requested_bytes
    assert 0 <= more <= 2 * ranks.breakdown["parameter"]
