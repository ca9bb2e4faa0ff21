"""A training step of one's own: text classification, micro-batches, clipped gradients.

``train_step`` replaces memplan's loop, so what it keeps alive and when it lets go is what is predicted.

Try it with

    memplan estimate examples/gradient_accumulation.py --gpu l4 --batch-size 64
"""

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, CLASSES = 32000, 512, 4
MICRO_BATCHES = 4


class Classifier(nn.Module):
    """A transformer encoder whose mean token decides."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=8, dim_feedforward=4 * WIDTH, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=6)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.tokens(tokens)).mean(dim=1))


def model() -> nn.Module:
    return Classifier()


def batch(batch_size: int, seq_len: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(VOCABULARY, (batch_size, seq_len)), torch.randint(CLASSES, (batch_size,))


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    total = torch.zeros((), device=batch[0].device)
    for tokens, labels in zip(*(part.chunk(MICRO_BATCHES) for part in batch), strict=True):
        loss = functional.cross_entropy(model(tokens), labels) / MICRO_BATCHES
        loss.backward()
        total += loss.detach()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    optimizer.zero_grad()
    return total
