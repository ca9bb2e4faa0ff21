"""Two images through one network with grouped, strided convolutions."""

from collections.abc import Iterable

import torch
from torch import nn

Pair = tuple[torch.Tensor, torch.Tensor]


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(3, 24, 3, stride=2, padding=1),
            nn.GroupNorm(4, 24),
            nn.SiLU(),
            nn.Conv2d(24, 48, 3, stride=2, padding=1, groups=4),
            nn.InstanceNorm2d(48),
            nn.LeakyReLU(0.1),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(768, 128),
        )

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> Pair:
        return self.network(left), self.network(right)


def model() -> nn.Module:
    return Siamese()


def batch(batch_size: int, seq_len: int | None = None) -> Pair:
    return torch.randn(batch_size, 3, 96, 96), torch.randn(batch_size, 3, 96, 96)


def loss(output: Pair, batch: Pair) -> torch.Tensor:
    return nn.functional.cosine_embedding_loss(output[0], output[1], torch.ones(output[0].shape[0]))


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(parameters, momentum=0.9)
