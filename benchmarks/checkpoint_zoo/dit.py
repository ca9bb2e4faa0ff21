"""A diffusion transformer: every block is told the time by scales and shifts of its norms."""

import torch
from torch import nn
from torch.nn import functional

WIDTH, DEPTH, HEADS, PATCH = 256, 4, 4, 2


class Block(nn.Module):
    """Attention and MLP, both scaled, shifted and gated by the condition (Peebles and Xie 2022, arXiv:2212.09748)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.LayerNorm(WIDTH, elementwise_affine=False) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU("tanh"), nn.Linear(4 * WIDTH, WIDTH))
        self.told = nn.Sequential(nn.SiLU(), nn.Linear(WIDTH, 6 * WIDTH))

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Tokens to tokens."""
        shift, scale, gate, more_shift, more_scale, more_gate = self.told(condition)[:, None].chunk(6, -1)
        parts = self.qkv(self.first(x) * (1 + scale) + shift).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        x = x + gate * self.out(attended)
        return x + more_gate * self.mlp(self.second(x) * (1 + more_scale) + more_shift)


class Dit(nn.Module):
    """Noise of latents by patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(4, WIDTH, PATCH, PATCH)
        self.time = nn.Sequential(nn.Linear(1, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, 4 * PATCH * PATCH)

    def forward(self, latents: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Noisy latents to their noise."""
        x, condition = self.patches(latents).flatten(2).transpose(1, 2), self.time(time)
        for block in self.blocks:
            x = block(x, condition)
        return functional.fold(self.head(x).transpose(1, 2), latents.shape[2:], PATCH, stride=PATCH)


def model() -> nn.Module:
    """The network."""
    return Dit()


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, ...]:
    """Latents, times, noise."""
    del seq_len
    latents = torch.randn(batch_size, 4, 32, 32)
    return latents, torch.rand(batch_size, 1), torch.randn_like(latents)


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Squared error of the noise."""
    return functional.mse_loss(output, batch[2])
