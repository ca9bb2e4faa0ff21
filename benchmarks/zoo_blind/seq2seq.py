"""``nn.Transformer``, encoder and decoder."""

from collections.abc import Iterable

import torch
from torch import nn

Pair = tuple[torch.Tensor, torch.Tensor]


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(3000, 128)
        self.positions = nn.Parameter(torch.zeros(64, 128))
        self.transformer = nn.Transformer(128, 4, 2, 2, 512, batch_first=True)
        self.head = nn.Linear(128, 3000)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        mask = self.transformer.generate_square_subsequent_mask(target.shape[1])
        read = self.embed(source) + self.positions[: source.shape[1]]
        written = self.embed(target) + self.positions[: target.shape[1]]
        return self.head(self.transformer(read, written, tgt_mask=mask))


def model() -> nn.Module:
    return Translator()


def batch(batch_size: int, seq_len: int | None = None) -> Pair:
    return torch.randint(0, 3000, (batch_size, 64)), torch.randint(0, 3000, (batch_size, 48))


def loss(output: torch.Tensor, batch: Pair) -> torch.Tensor:
    return nn.functional.cross_entropy(output.flatten(0, 1), batch[1].flatten(), label_smoothing=0.1)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.NAdam(parameters)
