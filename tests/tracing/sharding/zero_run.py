"""One rank of a real DeepSpeed run on CPUs: ``python -m … CONFIG RANK RANKS PORT``; says what it held, as JSON.

CONFIG is a ``ds_config.json``, as text.
"""

import gc
import importlib
import json
import os
import sys
from collections.abc import Iterable
from typing import Any

import torch

from tests.tracing.sharding import zero_model

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Section of the configuration → dtype of the weights."""


def held() -> int:
    """Bytes of all storages that Python can reach."""
    tensors = [each for each in gc.get_objects() if isinstance(each, torch.Tensor)]
    tensors += [parameter.grad for parameter in tensors if parameter.is_leaf and parameter.grad is not None]
    storages = {each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in tensors if not each.is_meta}
    return sum(storages.values())


def peak_above_start(events: Iterable[Any]) -> int:
    """Most bytes that PyTorch's CPU allocator had given out, above what it had when the profile began."""
    memory = sorted((each.start_ns(), each.nbytes()) for each in events if each.name() == "[memory]")
    most = now = 0
    for _, nbytes in memory:
        now += nbytes
        most = max(most, now)
    return most


def run(config: dict[str, Any]) -> dict[str, int]:
    """Two steps: what is held after them, and the peak of the second."""
    deepspeed = importlib.import_module("deepspeed")
    deepspeed.init_distributed(dist_backend="gloo")
    half = next((dtype for name, dtype in HALVES.items() if name in config), torch.float32)
    model = zero_model.model().to(half)
    if config["zero_optimization"]["stage"] == 3:
        deepspeed.zero.Init(module=model, config_dict_or_path=config)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)

    def step() -> None:
        for _ in range(config["gradient_accumulation_steps"]):
            batch = zero_model.batch(1)
            engine.backward(zero_model.loss(engine(batch), batch))
            engine.step()

    step()
    gc.collect()
    before = held()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    gc.collect()
    peak = before + peak_above_start(profile.profiler.kineto_results.events())
    return {"held": held(), "before": before, "peak": peak}


if __name__ == "__main__":
    config, rank, ranks, port = sys.argv[1:]
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=ranks, LOCAL_WORLD_SIZE=ranks)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")
    # Progress goes to standard output too: the answer is its last line.
    figures = run(json.loads(config))
    sys.stdout.write("\n" + json.dumps(figures))
    sys.stdout.flush()
    os._exit(0)
