"""Graph network: gather, message, ``index_add``, with edge features."""

import torch
from torch import nn
from torch.nn import functional

_NODES, _EDGES = 64, 512


class Layer(nn.Module):
    """Mean of messages over incoming edges."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(2 * width, width), nn.Linear(2 * width, width)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Nodes ``[N, width]`` and edges ``[2, E]`` to nodes."""
        source, target = edges
        messages = functional.relu(self.message(torch.cat([nodes[source], nodes.index_select(0, target)], 1)))
        total = torch.zeros_like(nodes).index_add(0, target, messages)
        return functional.relu(self.update(torch.cat([nodes, total], 1)))


class Network(nn.Module):
    """Three layers, summed per graph."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.inside = nn.Linear(16, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(3))
        self.outside = nn.Linear(width, 1)

    def forward(self, features: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Features ``[N, 16]`` to one value per graph."""
        nodes = self.inside(features)
        for layer in self.layers:
            nodes = layer(nodes, edges)
        return self.outside(nodes).view(-1, _NODES).sum(1)


def model() -> nn.Module:
    """The network."""
    return Network()


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Disjoint random graphs and their targets."""
    del seq_len
    offsets = torch.arange(batch_size).repeat_interleave(_EDGES) * _NODES
    edges = torch.randint(_NODES, (2, batch_size * _EDGES)) + offsets
    return torch.randn(batch_size * _NODES, 16), edges, torch.randn(batch_size)


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Squared error."""
    return functional.mse_loss(output, batch[2])
