"""Gated perceptron trained by ``torch.optim.Adafactor``, which reads scalars back in its step."""

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional


class Gated(nn.Module):
    """SwiGLU block with a root-mean-square norm."""

    def __init__(self, width: int = 384, inner: int = 1024) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate, self.value = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.out = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features to features."""
        y = self.norm(x)
        return x + self.out(functional.silu(self.gate(y)) * self.value(y))


def model() -> nn.Module:
    """Four blocks and a head."""
    return nn.Sequential(nn.Linear(64, 384), Gated(), Gated(), Gated(), Gated(), nn.Linear(384, 50))


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and soft labels."""
    del seq_len
    return torch.randn(batch_size, 64), torch.rand(batch_size, 50).softmax(-1)


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Divergence from the soft labels."""
    return functional.kl_div(output.log_softmax(-1), batch[1], reduction="batchmean")


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adafactor with factored second moments."""
    return torch.optim.Adafactor(parameters, lr=1e-2)
