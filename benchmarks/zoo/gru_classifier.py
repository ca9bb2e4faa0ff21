"""Bidirectional GRU over embedded text, mean pooled."""

import torch
from torch import nn
from torch.nn import functional


class Classifier(nn.Module):
    """Embedding, bidirectional GRU, linear head."""

    def __init__(self, vocabulary: int = 8000, width: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.gru = nn.GRU(width, width, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * width, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens to class logits."""
        hidden, _ = self.gru(self.embedding(tokens))
        return self.head(hidden.mean(1))


def model() -> nn.Module:
    """The network."""
    return Classifier()


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and labels."""
    return torch.randint(1, 8000, (batch_size, seq_len or 64)), torch.randint(10, (batch_size,))


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Cross entropy."""
    return functional.cross_entropy(output, batch[1])
