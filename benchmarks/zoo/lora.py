"""Low-rank adapters on a frozen transformer: only the adapters get gradients and optimizer state."""

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional


class Adapted(nn.Module):
    """A frozen linear layer and a trainable low-rank detour."""

    def __init__(self, inputs: int, outputs: int, rank: int = 8) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Base plus detour."""
        return self.base(x) + self.up(self.down(functional.dropout(x, 0.05, self.training))) * 2.0


class Block(nn.Module):
    """Causal SDPA and feed-forward part with adapted projections."""

    def __init__(self, width: int = 256, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width).requires_grad_(False)
        self.norm2 = nn.LayerNorm(width).requires_grad_(False)
        self.query, self.key, self.value = (Adapted(width, width) for _ in range(3))
        self.out = nn.Linear(width, width).requires_grad_(False)
        self.inner = nn.Linear(width, 4 * width).requires_grad_(False)
        self.outer = nn.Linear(4 * width, width).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens to tokens."""
        y = self.norm1(x)
        query, key, value = (
            projection(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.outer(functional.gelu(self.inner(self.norm2(x))))


def model() -> nn.Module:
    """Three blocks; embedding and head are frozen too."""
    embedding = nn.Embedding(2000, 256).requires_grad_(False)
    return nn.Sequential(embedding, *(Block() for _ in range(3)), nn.Linear(256, 2000).requires_grad_(False))


def batch(batch_size: int, seq_len: int | None = None) -> torch.Tensor:
    """Random tokens."""
    return torch.randint(2000, (batch_size, seq_len or 128))


def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    """Next-token cross entropy."""
    return functional.cross_entropy(output[:, :-1].flatten(0, 1), batch[:, 1:].flatten())


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW over what is trainable."""
    return torch.optim.AdamW([parameter for parameter in parameters if parameter.requires_grad], lr=1e-4)
