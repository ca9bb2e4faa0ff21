"""Mixture of experts with one-hot dispatch and a fixed capacity (GShard): every size is static."""

import torch
from torch import nn
from torch.nn import functional


class Experts(nn.Module):
    """Top-1 routing; what exceeds an expert's capacity is dropped."""

    def __init__(self, width: int, experts: int = 4, capacity_factor: float = 1.25) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.inner = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.02)
        self.outer = nn.Parameter(torch.randn(experts, 2 * width, width) * 0.02)
        self.capacity_factor = capacity_factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens to tokens."""
        tokens = x.flatten(0, 1)
        experts = self.inner.shape[0]
        capacity = int(self.capacity_factor * len(tokens) / experts)
        gates = functional.softmax(self.router(tokens), dim=-1)
        chosen = functional.one_hot(gates.argmax(-1), experts)
        position = (torch.cumsum(chosen, 0) - 1) * chosen
        kept = chosen * (position < capacity)
        slots = functional.one_hot((position * kept).sum(-1), capacity).to(gates.dtype)
        dispatch = kept.to(gates.dtype)[:, :, None] * slots[:, None, :]
        inside = torch.einsum("tec,td->ecd", dispatch, tokens)
        outside = torch.bmm(functional.relu(torch.bmm(inside, self.inner)), self.outer)
        return torch.einsum("tec,ecd->td", dispatch * gates[:, :, None], outside).view_as(x)


def model() -> nn.Module:
    """An embedding, two expert layers and a head."""
    width = 128
    return nn.Sequential(
        nn.Embedding(1000, width), Experts(width), nn.LayerNorm(width), Experts(width), nn.Linear(width, 1000)
    )


def batch(batch_size: int, seq_len: int | None = None) -> torch.Tensor:
    """Random tokens."""
    return torch.randint(1000, (batch_size, seq_len or 128))


def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    """Reconstruction of the tokens."""
    return functional.cross_entropy(output.flatten(0, 1), batch.flatten())
