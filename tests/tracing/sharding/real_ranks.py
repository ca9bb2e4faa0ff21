"""What each of two real processes holds that train over gloo."""

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.tracing.sharding.nets import Net, rows

RANKS = 2
BUCKET_MIB = 0.0625
"""Small enough for several buckets of DDP's."""

CPU_CAN_SHARD = hasattr(torch.cpu.Stream, "record_event")
"""Does FSDP2 run on CPUs? In torch 2.6 it does not."""


def told(_: int, ranks: int) -> dict[str, dict[str, Any]]:
    """What a rank holds with each kind of parallelism."""
    kinds = {"ddp": trained(nn.parallel.DistributedDataParallel(Net(), bucket_cap_mb=BUCKET_MIB))}
    if CPU_CAN_SHARD:
        kinds["fsdp2"] = trained(sharded(ranks))
    return kinds


def trained(model: nn.Module) -> dict[str, Any]:
    """What a rank holds after some steps, and the gradients before the last update."""
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    gradients = 0
    for _ in range(3):
        optimizer.zero_grad()
        model(rows(4)).backward()
        gradients = held(parameter.grad for parameter in model.parameters())
        optimizer.step()
    states = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
    told: dict[str, Any] = {
        "parameter": held(model.parameters()),
        "gradient": gradients,
        "optimizer_state": held(states),
    }
    if isinstance(model, nn.parallel.DistributedDataParallel):
        told["buckets"] = model._get_ddp_logging_data()["rebuilt_bucket_sizes"]
    return told


def sharded(ranks: int) -> nn.Module:
    model = Net()
    mesh = init_device_mesh("cpu", (ranks,))
    for block in model.layers:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def held(tensors: Any) -> int:
    """Bytes of the storages of tensors' local parts, each once."""
    storages = {}
    for tensor in tensors:
        storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())
