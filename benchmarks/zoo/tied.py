"""Convolutional language model whose decoder shares the embedding's weight."""

import torch
from torch import nn
from torch.nn import functional


class Tied(nn.Module):
    """Embedding, gated causal convolutions, decoder with the same weight."""

    def __init__(self, vocabulary: int = 6000, width: int = 192) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, 2 * width, 3) for _ in range(3))
        self.decoder = nn.Linear(width, vocabulary, bias=False)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens to logits."""
        hidden = self.embedding(tokens).transpose(1, 2)
        for convolution in self.convolutions:
            hidden = hidden + functional.glu(convolution(functional.pad(hidden, (2, 0))), dim=1)
        return self.decoder(hidden.transpose(1, 2))


def model() -> nn.Module:
    """The network."""
    return Tied()


def batch(batch_size: int, seq_len: int | None = None) -> torch.Tensor:
    """Random tokens."""
    return torch.randint(6000, (batch_size, seq_len or 96))


def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    """Next-token cross entropy."""
    return functional.cross_entropy(output[:, :-1].flatten(0, 1), batch[:, 1:].flatten())
