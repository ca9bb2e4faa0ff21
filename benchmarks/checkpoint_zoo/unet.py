"""UNet whose way up takes what every block of the way down returned: no chain of blocks."""

import torch
from torch import nn
from torch.nn import functional

WIDTHS = (32, 64, 128, 256)


class Block(nn.Module):
    """Two normalised convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images to images."""
        y = functional.silu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return functional.silu(y + self.shortcut(x))


class UNet(nn.Module):
    """Two blocks a level on both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.tail = nn.Conv2d(3, WIDTHS[0], 3, padding=1), nn.Conv2d(WIDTHS[0], 4, 1)
        self.down, self.up, width = nn.ModuleList(), nn.ModuleList(), WIDTHS[0]
        skipped = []
        for outputs in WIDTHS:
            for _ in range(2):
                self.down.append(Block(width, outputs))
                width = outputs
                skipped.append(width)
        for outputs in reversed(WIDTHS):
            for _ in range(2):
                self.up.append(Block(width + skipped.pop(), outputs))
                width = outputs

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images to per-pixel logits."""
        y, skipped = self.head(images), []
        for index, block in enumerate(self.down):
            y = functional.max_pool2d(y, 2) if index and index % 2 == 0 else y
            y = block(y)
            skipped.append(y)
        for index, block in enumerate(self.up):
            y = functional.interpolate(y, scale_factor=2.0) if index and index % 2 == 0 else y
            y = block(torch.cat([y, skipped.pop()], 1))
        return self.tail(y)


def model() -> nn.Module:
    """The network."""
    return UNet()


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and masks."""
    del seq_len
    return torch.randn(batch_size, 3, 96, 96), torch.randint(4, (batch_size, 96, 96))


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Cross entropy per pixel."""
    return functional.cross_entropy(output, batch[1])
