"""A small transformer with fused attention, dropout and layer norms."""

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, WORDS = 256, 4, 5000


class Block(nn.Module):
    """Attention and feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.queries = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Hidden states to hidden states."""
        size, length, _ = x.shape
        heads = self.queries(self.norms[0](x)).view(size, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*heads, is_causal=True, dropout_p=0.1)
        x = x + self.out(attended.transpose(1, 2).reshape(size, length, WIDTH))
        return x + self.feed(self.norms[1](x))


class Net(nn.Module):
    """Words to logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """The logits."""
        x = self.embed(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def model() -> nn.Module:
    """The model."""
    return Net()


def batch(batch_size: int, seq_len: int = 512) -> torch.Tensor:
    """Words."""
    return torch.randint(WORDS, (batch_size, seq_len))


def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    """Cross entropy."""
    return functional.cross_entropy(output.flatten(0, 1), batch.flatten())
