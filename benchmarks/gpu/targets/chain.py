"""Equal blocks one after the other, each a small perceptron with a residual: what checkpointing is simplest for."""

import torch
from sizes import pick
from torch import nn

WIDTH = pick(full=1024, tiny=64)


class Block(nn.Module):
    """Norm, up, GELU, down."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Add to the hidden state."""
        result: torch.Tensor = hidden + self.inner(hidden)
        return result


def model() -> nn.Module:
    """Twelve blocks."""
    return nn.Sequential(*(Block() for _ in range(pick(full=12, tiny=4))))


def batch(batch_size: int) -> torch.Tensor:
    """Random features."""
    return torch.randn(batch_size, WIDTH)


def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
    """Mean square."""
    return output.square().mean()
