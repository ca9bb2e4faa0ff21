"""Vision transformer by hand: patch convolution, class token, SDPA without mask."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Pre-norm attention and feed-forward part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens to tokens."""
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        query, key, value = self.qkv(self.norm1(x)).reshape(shape).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.outer(functional.gelu(self.inner(self.norm2(x))))


class Network(nn.Module):
    """Patches, class token, positions, blocks, head."""

    def __init__(self, width: int = 192, depth: int = 4) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.zeros(1, 145, width))
        self.blocks = nn.Sequential(*(Block(width, 6) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images to logits."""
        patches = self.patch(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(images), -1, -1), patches], 1) + self.position
        return self.head(self.norm(self.blocks(tokens)[:, 0]))


def model() -> nn.Module:
    """The network."""
    return Network()


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels."""
    del seq_len
    return torch.randn(batch_size, 3, 96, 96), torch.randint(100, (batch_size,))


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Cross entropy."""
    return functional.cross_entropy(output, batch[1])
