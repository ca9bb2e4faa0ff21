"""Gated dilated convolutions over a waveform."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.gates = nn.Conv1d(channels, 2 * channels, 3, padding=dilation, dilation=dilation)
        self.out = nn.Conv1d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.gates(x).chunk(2, 1)
        return x + self.out(torch.tanh(first) * torch.sigmoid(second))


def model() -> nn.Module:
    return nn.Sequential(nn.Conv1d(1, 32, 1), *[Block(32, 2**i) for i in range(6)], nn.Conv1d(32, 256, 1))


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch_size, 1, 2000), torch.randint(0, 256, (batch_size, 2000))


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(output, batch[1])
