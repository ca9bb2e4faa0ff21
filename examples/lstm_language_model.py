"""A two-layer LSTM language model. There is no ``loss``: the model returns it, as transformers' models do.

Try it with

    memplan estimate examples/lstm_language_model.py --gpu rtx-3060 --batch-size 64 --optimizer adagrad
"""

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, LAYERS = 10000, 650, 2


class LanguageModel(nn.Module):
    """Tokens to the loss of predicting each next one."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=LAYERS, dropout=0.5, batch_first=True)
        self.decoder = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.lstm(self.embedding(tokens))
        return functional.cross_entropy(self.decoder(hidden).flatten(0, 1), targets.flatten())


def model() -> nn.Module:
    return LanguageModel()


def batch(batch_size: int, seq_len: int = 35) -> dict[str, torch.Tensor]:
    """A dict is passed as keywords."""
    text = torch.randint(VOCABULARY, (batch_size, seq_len + 1))
    return {"tokens": text[:, :-1], "targets": text[:, 1:]}
