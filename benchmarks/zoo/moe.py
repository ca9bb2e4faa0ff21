"""Mixture of experts, top-2 routing; tokens are gathered per expert with ``torch.where`` and added back in place."""

import torch
from torch import nn
from torch.nn import functional


class Experts(nn.Module):
    """Eight feed-forward experts, two per token."""

    def __init__(self, width: int, experts: int = 8, chosen: int = 2) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(experts)
        )
        self.chosen = chosen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens to tokens."""
        tokens = x.flatten(0, 1)
        weights, selected = functional.softmax(self.router(tokens), dim=-1).topk(self.chosen, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        output = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            rows, slot = torch.where(selected == index)
            output.index_add_(0, rows, expert(tokens[rows]) * weights[rows, slot, None])
        return output.view_as(x)


class Layer(nn.Module):
    """Norm, experts, residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.experts = nn.LayerNorm(width), Experts(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens to tokens."""
        return x + self.experts(self.norm(x))


def model() -> nn.Module:
    """Three layers between an embedding and a head."""
    width = 128
    return nn.Sequential(nn.Embedding(1000, width), *(Layer(width) for _ in range(3)), nn.Linear(width, 1000))


def batch(batch_size: int, seq_len: int | None = None) -> torch.Tensor:
    """Random tokens."""
    return torch.randint(1000, (batch_size, seq_len or 128))


def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    """Reconstruction of the tokens."""
    return functional.cross_entropy(output.flatten(0, 1), batch.flatten())
