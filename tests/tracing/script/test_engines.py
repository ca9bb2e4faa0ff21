"""Programs that train by DeepSpeed's engine: what one rank of two holds, by the textbook."""

import importlib.util
from collections.abc import Callable

import pytest

from memplan.job.parallel import parse_parallel
from memplan.measure.records import Estimate
from tests.tracing.script.test_boundaries import Counted

needs_deepspeed = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs deepspeed")
PROGRAM = """
import argparse
import deepspeed
import torch
from torch.nn import functional as F
from net import build
parser = argparse.ArgumentParser()
parser.add_argument("--stage", type=int)
parser.add_argument("--dtype")
options = parser.parse_args()
config = {
    "train_micro_batch_size_per_gpu": 32,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "zero_optimization": {"stage": options.stage, "reduce_bucket_size": 1000},
}
dtypes = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
if options.dtype != "fp32":
    config[options.dtype] = {"enabled": True}
model = build()
groups = [
    {"params": [each for each in model.parameters() if each.dim() > 1], "weight_decay": 0.1},
    {"params": [each for each in model.parameters() if each.dim() == 1], "weight_decay": 0.0},
]
engine, *_ = deepspeed.initialize(model=model, model_parameters=groups, config=config)
while True:
    x = torch.randn(32, 64, device=engine.device, dtype=dtypes[options.dtype])
    loss = F.cross_entropy(engine(x), torch.randint(10, (32,), device=engine.device))
    engine.backward(loss)
    engine.step()
"""
PARAMETERS = 64 * 256 + 256 + 256 * 10 + 10
ALIGNMENT = 64
"""Bytes by which the parts of two groups may be longer than a half of them (nccl_start_alignment_factor)."""


@needs_deepspeed
@pytest.mark.parametrize(
    ("stage", "dtype", "weights", "states"),
    [
        (0, "fp32", 4, 8),
        (0, "fp16", 2, 12),
        (1, "bf16", 2, 6),
        (2, "fp16", 2, 6),
    ],
)
def test_an_engine_holds_what_the_textbook_says(
    stage: int, dtype: str, weights: int, states: int, estimated: Callable[..., Estimate]
) -> None:
    given = ("--stage", str(stage), "--dtype", dtype)
    held = estimated(PROGRAM, *given, parallel=parse_parallel("ddp=2")).breakdown
    assert held["parameter"] == pytest.approx(weights * PARAMETERS, abs=ALIGNMENT)
    assert held["optimizer_state"] == pytest.approx(states * PARAMETERS, abs=states * ALIGNMENT)


def test_an_engine_steps_once_however_often_its_optimizers_do() -> None:
    counted = Counted()
    counted.stepped("engine")
    for _ in range(3):
        with counted.of_engine():
            counted.stepped("optimizer")
            counted.stepped("optimizer")
        counted.stepped("engine")
    assert counted.ended == 3
