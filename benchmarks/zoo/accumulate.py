"""A plain transformer block stack meant to be run with gradient accumulation and clipping (by options)."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Pre-norm attention by hand (softmax of a masked product) and a feed-forward part."""

    def __init__(self, width: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens to tokens."""
        length, width = x.shape[1:]
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(width, -1)
        )
        scores = query @ key.transpose(-2, -1) / (width // self.heads) ** 0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = functional.dropout(scores.masked_fill(future, float("-inf")).softmax(-1), 0.1, self.training) @ value
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.outer(functional.gelu(self.inner(self.norm2(x))))


def model() -> nn.Module:
    """Three blocks between an embedding and a head."""
    return nn.Sequential(nn.Embedding(1000, 128), Block(), Block(), Block(), nn.Linear(128, 1000))


def batch(batch_size: int, seq_len: int | None = None) -> torch.Tensor:
    """Random tokens."""
    return torch.randint(1000, (batch_size, seq_len or 96))


def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    """Next-token cross entropy."""
    return functional.cross_entropy(output[:, :-1].flatten(0, 1), batch[:, 1:].flatten())
