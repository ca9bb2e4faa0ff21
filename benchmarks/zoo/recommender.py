"""Recommender with bags of features (``nn.EmbeddingBag``), dense features and pairwise interactions."""

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional


class Recommender(nn.Module):
    """DLRM in small: a bag per field, a bottom and a top network."""

    def __init__(self, fields: int = 8, rows: int = 5000, width: int = 32) -> None:
        super().__init__()
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(rows, width, mode="sum" if i % 2 else "mean", sparse=False) for i in range(fields)
        )
        self.bottom = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, width), nn.ReLU())
        pairs = (fields + 1) * fields // 2
        self.top = nn.Sequential(nn.Linear(pairs + width, 256), nn.ReLU(), nn.Linear(256, 1))
        self.register_buffer("triangle", torch.tril_indices(fields + 1, fields + 1, -1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        """Dense ``[B, 16]`` and ids ``[B, fields, bag]`` to logits."""
        below = self.bottom(dense)
        vectors = torch.stack([below, *(bag(sparse[:, i]) for i, bag in enumerate(self.bags))], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        rows, columns = self.triangle
        return self.top(torch.cat([below, products[:, rows, columns]], 1)).squeeze(1)


def model() -> nn.Module:
    """The network."""
    return Recommender()


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Dense features, ids and clicks."""
    return (
        torch.randn(batch_size, 16),
        torch.randint(5000, (batch_size, 8, seq_len or 10)),
        torch.randint(2, (batch_size,)).float(),
    )


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Binary cross entropy."""
    return functional.binary_cross_entropy_with_logits(output, batch[2])


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adagrad, as recommenders use."""
    return torch.optim.Adagrad(parameters, lr=0.01)
