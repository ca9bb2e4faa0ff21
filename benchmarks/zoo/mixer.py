"""MLP-Mixer: token mixing through transposes, channel mixing, unfolded patches."""

import torch
from torch import nn
from torch.nn import functional


class Mixer(nn.Module):
    """One mixing block."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.token = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channel = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[B, tokens, width]`` to the same."""
        x = x + self.token(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel(self.norm2(x))


class Network(nn.Module):
    """Patches, four blocks, mean, head."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Linear(3 * 64, 128)
        self.blocks = nn.Sequential(*(Mixer(64, 128) for _ in range(4)))
        self.head = nn.Linear(128, 100)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images to logits."""
        patches = functional.unfold(images, 8, stride=8).transpose(1, 2)
        return self.head(self.blocks(self.patch(patches)).mean(1))


def model() -> nn.Module:
    """The network."""
    return Network()


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels."""
    del seq_len
    return torch.randn(batch_size, 3, 64, 64), torch.randint(100, (batch_size,))


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Cross entropy with label smoothing."""
    return functional.cross_entropy(output, batch[1], label_smoothing=0.1)
