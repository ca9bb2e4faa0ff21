"""A deep graph net: residual layers that gather messages along edges and scatter their sums."""

import torch
from torch import nn
from torch.nn import functional

WIDTH, DEPTH, NEIGHBOURS = 64, 4, 8


class Layer(nn.Module):
    """Messages of both ends of an edge, summed at one (Gilmer et al. 2017, arXiv:1704.01212), before a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.message = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.update = nn.Sequential(nn.Linear(2 * WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Nodes to nodes."""
        x = self.norm(nodes)
        messages = self.message(torch.cat([x[edges[0]], x[edges[1]]], 1))
        heard = torch.zeros_like(x).index_add(0, edges[1], messages)
        return nodes + self.update(torch.cat([x, heard], 1))


class Graph(nn.Module):
    """Classes of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.tail = nn.Linear(32, WIDTH), nn.Linear(WIDTH, 10)
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Nodes to logits."""
        x = self.head(nodes)
        for layer in self.layers:
            x = layer(x, edges)
        return self.tail(x)


def model() -> nn.Module:
    """The network."""
    return Graph()


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, ...]:
    """Graphs of 500 nodes as one, its edges, classes."""
    del seq_len
    count = 500 * batch_size
    return torch.randn(count, 32), torch.randint(count, (2, NEIGHBOURS * count)), torch.randint(10, (count,))


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Cross entropy of nodes."""
    return functional.cross_entropy(output, batch[2])
