"""ConvNeXt in small: depthwise 7x7 convolutions, channels-last layer norm, layer scale, stochastic depth off."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Depthwise convolution, norm over channels, inverted bottleneck."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images to images."""
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.outer(functional.gelu(self.inner(y)))
        return x + y.permute(0, 3, 1, 2)


class Network(nn.Module):
    """Two stages."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 48, 4, 4)
        self.stage1 = nn.Sequential(Block(48), Block(48))
        self.down = nn.Conv2d(48, 96, 2, 2)
        self.stage2 = nn.Sequential(Block(96), Block(96))
        self.head = nn.Linear(96, 100)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images to logits."""
        return self.head(self.stage2(self.down(self.stage1(self.stem(images)))).mean((2, 3)))


def model() -> nn.Module:
    """The network."""
    return Network()


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels."""
    del seq_len
    return torch.randn(batch_size, 3, 96, 96), torch.randint(100, (batch_size,))


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Cross entropy."""
    return functional.cross_entropy(output, batch[1])
