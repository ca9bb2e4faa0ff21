"""Two-layer LSTM language model, batch first, with dropout between layers."""

import torch
from torch import nn
from torch.nn import functional


class LanguageModel(nn.Module):
    """Embedding, LSTM, decoder."""

    def __init__(self, vocabulary: int = 4000, width: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, dropout=0.1)
        self.decoder = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens to logits."""
        hidden, _ = self.lstm(self.embedding(tokens))
        return self.decoder(hidden)


def model() -> nn.Module:
    """The network."""
    return LanguageModel()


def batch(batch_size: int, seq_len: int | None = None) -> torch.Tensor:
    """Random tokens."""
    return torch.randint(4000, (batch_size, seq_len or 64))


def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    """Next-token cross entropy."""
    return functional.cross_entropy(output[:, :-1].flatten(0, 1), batch[:, 1:].flatten())
