"""A plain perceptron with a very large batch: few, large allocations."""

import torch
from sizes import pick
from torch import nn
from torch.nn import functional

WIDTH = pick(full=2048, tiny=64)


def network() -> nn.Module:
    """Six layers."""
    layers: list[nn.Module] = [nn.Linear(256, WIDTH), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def model() -> nn.Module:
    """The network."""
    return network()


def batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and labels."""
    return torch.randn(batch_size, 256), torch.randint(10, (batch_size,))


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Cross entropy."""
    return functional.cross_entropy(output, batch[1])
