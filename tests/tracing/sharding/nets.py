"""A small network of repeated blocks, for traces and for real ranks alike."""

import torch
from torch import nn

WIDTH, BLOCKS, INPUTS = 64, 2, 16
BLOCK_SHAPES = ((4 * WIDTH, WIDTH), (4 * WIDTH,), (WIDTH, 4 * WIDTH), (WIDTH,))
"""Parameters of a block."""
ROOT_SHAPES = ((WIDTH, INPUTS), (WIDTH,), (8, WIDTH))
"""Parameters outside of the blocks."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.down(torch.relu(self.up(x)))
        return out


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(INPUTS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        for layer in self.layers:
            x = layer(x)
        out: torch.Tensor = self.head(x)
        return out.square().mean()


class Tied(nn.Module):
    """Input and output share one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, 32, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        out: torch.Tensor = self.head(x)
        return out.square().mean()


def rows(size: int) -> torch.Tensor:
    return torch.randn(size, INPUTS)


def tokens(size: int) -> torch.Tensor:
    return torch.zeros(size, 8, dtype=torch.long)
