"""DLRM: embedding bags, a dense net below and above, and products between all of them; no block repeats."""

import torch
from torch import nn
from torch.nn import functional

TABLES, ROWS, WIDTH = 8, 10000, 64


class Dlrm(nn.Module):
    """Eight features of four items each beside thirteen numbers (Naumov et al. 2019, arXiv:1906.00091)."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROWS, WIDTH, mode="sum") for _ in range(TABLES))
        self.bottom = nn.Sequential(
            nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, WIDTH), nn.ReLU()
        )
        pairs = (TABLES + 1) * TABLES // 2
        self.top = nn.Sequential(
            nn.Linear(pairs + WIDTH, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1)
        )

    def forward(self, numbers: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        """Features to one logit a sample."""
        dense = self.bottom(numbers)
        features = torch.stack([dense, *(table(part) for table, part in zip(self.tables, items, strict=True))], 1)
        products = features @ features.transpose(1, 2)
        row, column = torch.tril_indices(TABLES + 1, TABLES + 1, -1)
        return self.top(torch.cat([dense, products[:, row, column]], 1))


def model() -> nn.Module:
    """The network."""
    return Dlrm()


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, ...]:
    """Numbers, items of each table, clicks."""
    del seq_len
    items = torch.randint(ROWS, (TABLES, batch_size, 4))
    return torch.randn(batch_size, 13), items, torch.randint(2, (batch_size, 1)).float()


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Was it clicked?"""
    return functional.binary_cross_entropy_with_logits(output, batch[2])
