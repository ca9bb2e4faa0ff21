"""Convolutions and linear layers under ``torch.autocast("cpu", torch.bfloat16)`` in the file's own step."""

import torch
from torch import nn
from torch.nn import functional


def model() -> nn.Module:
    """A patch convolution and a deep perceptron with layer norms."""
    blocks = [nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(4)]
    return nn.Sequential(nn.Conv2d(3, 256, 8, 8), nn.Flatten(2), nn.Linear(64, 256), *blocks, nn.Linear(256, 10))


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels."""
    del seq_len
    return torch.randn(batch_size, 3, 64, 64), torch.randint(10, (batch_size,))


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Forward and loss under autocast, the rest outside."""
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(batch[0]).mean(1)
        loss = functional.cross_entropy(logits, batch[1])
    loss.backward()
    optimizer.step()
