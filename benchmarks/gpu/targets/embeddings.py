"""A recommender that is mostly tables: 26 fields of 100,000 rows, dense gradients (DLRM, Naumov et al. 2019)."""

from collections.abc import Iterable

import torch
from sizes import pick
from torch import nn
from torch.nn import functional

FIELDS, ROWS, WIDTH = 26, pick(full=100_000, tiny=200), pick(full=64, tiny=8)


class Recommender(nn.Module):
    """One table for each field, pairwise products, a small network on top."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(ROWS, WIDTH) for _ in range(FIELDS))
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, WIDTH), nn.ReLU())
        pairs = (FIELDS + 1) * FIELDS // 2
        self.top = nn.Sequential(nn.Linear(pairs + WIDTH, 1024), nn.ReLU(), nn.Linear(1024, 1))
        self.register_buffer("triangle", torch.tril_indices(FIELDS + 1, FIELDS + 1, -1))

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Dense ``[B, 13]`` and ids ``[B, fields]`` to logits."""
        below = self.bottom(dense)
        vectors = torch.stack([below, *(table(ids[:, i]) for i, table in enumerate(self.tables))], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        rows, columns = self.triangle
        return self.top(torch.cat([below, products[:, rows, columns]], 1)).squeeze(1)


def model() -> nn.Module:
    """The network."""
    return Recommender()


def batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Dense features, ids and clicks."""
    return torch.randn(batch_size, 13), torch.randint(ROWS, (batch_size, FIELDS)), torch.rand(batch_size)


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Binary cross entropy."""
    return functional.binary_cross_entropy_with_logits(output, batch[2])


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adagrad, as is usual for tables."""
    return torch.optim.Adagrad(parameters, lr=0.01)
