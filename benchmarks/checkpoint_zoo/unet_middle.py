"""UNet of one double convolution a level, with a single bottleneck between the ways down and up."""

import torch
from torch import nn
from torch.nn import functional

WIDTHS = (16, 32, 64)


def double(inputs: int, outputs: int) -> nn.Module:
    """Two normalised convolutions (Ronneberger et al. 2015, arXiv:1505.04597)."""
    first = (nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.ReLU())
    return nn.Sequential(*first, nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.ReLU())


class UNet(nn.Module):
    """What goes up takes what the same level returned on the way down."""

    def __init__(self) -> None:
        super().__init__()
        inputs = (3, *WIDTHS[:-1])
        self.down = nn.ModuleList(double(width, outputs) for width, outputs in zip(inputs, WIDTHS, strict=True))
        self.middle = double(WIDTHS[-1], 2 * WIDTHS[-1])
        self.wider = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, 2) for width in reversed(WIDTHS))
        self.up = nn.ModuleList(double(2 * width, width) for width in reversed(WIDTHS))
        self.tail = nn.Conv2d(WIDTHS[0], 2, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images to per-pixel logits."""
        y, skipped = images, []
        for block in self.down:
            y = block(y)
            skipped.append(y)
            y = functional.max_pool2d(y, 2)
        y = self.middle(y)
        for wider, block in zip(self.wider, self.up, strict=True):
            y = block(torch.cat([skipped.pop(), wider(y)], 1))
        return self.tail(y)


def model() -> nn.Module:
    """The network."""
    return UNet()


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and masks."""
    del seq_len
    return torch.randn(batch_size, 3, 96, 96), torch.randint(2, (batch_size, 96, 96))


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Cross entropy per pixel."""
    return functional.cross_entropy(output, batch[1])
