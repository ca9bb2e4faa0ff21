"""A small regressor trained under memory that runs short: the batch is found first, and steps survive a bad moment.

Run it: python examples/adaptive_batch.py. Needs no GPU: a budget of rows plays the device.
"""

import torch
from torch import nn

import memplan

ROOM = 48
"""Rows that the pretended device can hold."""


class Regressor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 1))
        self.room = ROOM

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if len(rows) > self.room:
            raise torch.OutOfMemoryError("the pretended device is full")
        return self.layers(rows)


def model() -> nn.Module:
    return Regressor()


def batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.randn(batch_size, 16)
    return rows, rows.sum(1, keepdim=True)


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.mse_loss(output, batch[1])


def optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2)


def two_steps(batch_size: int) -> None:
    """What the finder tries: a model of its own, and two steps, since the first makes the optimizer's state."""
    trained = model()
    updates = optimizer(trained.parameters())
    for _ in range(2):
        rows = batch(batch_size)
        loss(trained(rows[0]), rows).backward()
        updates.step()
        updates.zero_grad()


def main() -> None:
    torch.manual_seed(0)
    found = memplan.find_batch(two_steps, prediction=50)
    print(f"largest batch: {found.size} ({found.ended}), tried {[each.size for each in found.tries]}")

    trained = model()
    updates = optimizer(trained.parameters())
    step = memplan.AutoMicroBatch(trained, lambda rows: loss(trained(rows[0]), rows), patience=20)
    for number in range(60):
        trained.room = ROOM // 3 if 10 <= number < 30 else ROOM  # Somebody else takes memory for a while.
        updates.zero_grad()
        done = step(batch(found.size))
        updates.step()
        if done.retries or number % 10 == 9:
            print(f"step {number}: loss {done.loss:.4f}, micro-batches {done.samples}, retries {done.retries}")


if __name__ == "__main__":
    main()
