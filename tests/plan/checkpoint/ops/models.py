"""Models small enough to run for real."""

import torch
from torch import nn
from torch.nn import functional


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query, key, value = (
            each(x).view(batch, length, self.heads, -1).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        query, key = (each * cos + _rotated(each) * sin for each in (query, key))
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return functional.dropout(self.out(y.transpose(1, 2).reshape(batch, length, width)), self.dropout)


def _rotated(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.first, self.second = Norm(width), Norm(width)
        self.attention = Attention(width, heads, dropout)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x), cos, sin)
        y = self.second(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """A decoder: RMS norms, rotary positions, SwiGLU; its result is the loss."""

    def __init__(
        self,
        *,
        layers: int,
        width: int = 64,
        heads: int = 4,
        vocabulary: int = 64,
        tied: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Block(width, heads, width * 8 // 3 // 32 * 32, dropout) for _ in range(layers))
        self.norm = Norm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        self.half = width // heads // 2

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(self.half) / self.half)
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos(), angles.sin()
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


class ConvNet(nn.Module):
    """Convolutions, batch norms whose statistics are written in forward, pooling with indices, a residual."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2))
        self.body = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
            for _ in range(3)
        )
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for layer in self.body:
            x = x + layer(x)
        return self.head(x.mean((2, 3))).logsumexp(-1).sum()
