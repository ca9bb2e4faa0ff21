"""``nn.TransformerEncoder`` with its deep-copied layers, dropout and a padding mask."""

import torch
from torch import nn
from torch.nn import functional


class Encoder(nn.Module):
    """Embedding with positions, four layers, masked mean, head."""

    def __init__(self, vocabulary: int = 2000, width: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.zeros(1, 512, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(width, 20)

    def forward(self, tokens: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        """Tokens and padding mask to class logits."""
        hidden = self.embedding(tokens) + self.position[:, : tokens.shape[1]]
        hidden = self.encoder(hidden, src_key_padding_mask=padding)
        return self.head(hidden.masked_fill(padding[..., None], 0.0).mean(1))


def model() -> nn.Module:
    """The network."""
    return Encoder()


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens, padding and labels; the last is not passed to ``forward``."""
    length = seq_len or 128
    padding = torch.arange(length).expand(batch_size, length) >= length - 16
    return torch.randint(2000, (batch_size, length)), padding, torch.randint(20, (batch_size,))


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Cross entropy."""
    return functional.cross_entropy(output, batch[2])
