"""What a rank of a real run on CPUs holds."""

import weakref
from collections import Counter

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

SAMPLES, TOKENS, WIDTH, INNER, BLOCKS = 2, 24, 32, 128, 4
MICRO_BATCHES = 6
INNER_BYTES = SAMPLES * TOKENS * INNER * 4
"""Of what ``tanh`` makes; nothing else has that size."""


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, hidden):
        return hidden + self.fc2(torch.tanh(self.fc1(hidden)))


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(FeedForward() for _ in range(BLOCKS))

    def forward(self, hidden):
        for block in self.blocks:
            hidden = block(hidden)
        return hidden


def batch(batch_size: int = SAMPLES) -> torch.Tensor:
    return torch.ones(batch_size, TOKENS, WIDTH)


def loss(output: torch.Tensor, _: object) -> torch.Tensor:
    return output.sum()


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def tensor_parallel(_: int, ranks: int) -> dict[str, int]:
    """Bytes of the parameters of this rank, and of all that forward leaves for backward."""
    mesh, model = init_device_mesh("cpu", (ranks,)), Layers()
    for block in model.blocks:
        parallelize_module(block, mesh, {"fc1": ColwiseParallel(), "fc2": RowwiseParallel()})
    given, kept = batch(), {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = local(tensor).untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(given)
        total = loss(output, given)
    for tensor in (given, output, total):
        keep(tensor)
    parameters = [local(parameter) for parameter in model.parameters()]
    for parameter in parameters:
        kept.pop(parameter.untyped_storage().data_ptr(), None)
    return {"parameters": sum(each.nbytes for each in parameters), "saved": sum(kept.values())}


class _Saved:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def pipeline(rank: int, ranks: int) -> dict[str, int]:
    """Most results of ``tanh`` that wait for their backward at once, by schedule."""
    most: dict[str, int] = {}
    for name, schedule in {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}.items():
        alive: Counter[int] = Counter()
        peaks = [0]

        def keep(tensor: torch.Tensor, alive: Counter[int] = alive, peaks: list[int] = peaks) -> _Saved:
            saved, address = _Saved(tensor), tensor.untyped_storage().data_ptr()
            if tensor.nbytes == INNER_BYTES:
                alive[address] += 1
                weakref.finalize(saved, alive.subtract, [address])
                peaks.append(sum(count > 0 for count in alive.values()))
            return saved

        each = BLOCKS // ranks
        piece = nn.Sequential(*(FeedForward() for _ in range(each)))
        # Told beforehand, or every stage would run once to see.
        known = {"input_args": (batch().requires_grad_(rank > 0),), "output_args": (batch().requires_grad_(),)}
        stage = PipelineStage(piece, rank, ranks, torch.device("cpu"), **known)
        run = schedule(stage, n_microbatches=MICRO_BATCHES, loss_fn=loss)
        given = batch(SAMPLES * MICRO_BATCHES)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved.tensor):
            run.step(*([given] if rank == 0 else []), target=given)
        most[name] = max(peaks)
    return most
