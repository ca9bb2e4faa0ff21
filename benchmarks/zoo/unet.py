"""UNet with skip connections, transposed convolutions and group norm; the loss is per pixel."""

import torch
from torch import nn
from torch.nn import functional


def double(inputs: int, outputs: int) -> nn.Sequential:
    """Two normalised convolutions."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.GroupNorm(8, outputs),
        nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.GroupNorm(8, outputs),
        nn.SiLU(),
    )


class UNet(nn.Module):
    """Three levels down, three up; one up path interpolates, the others use transposed convolutions."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down1, self.down2, self.down3 = double(3, width), double(width, 2 * width), double(2 * width, 4 * width)
        self.middle = double(4 * width, 8 * width)
        self.up3 = nn.ConvTranspose2d(8 * width, 4 * width, 2, 2)
        self.merge3 = double(8 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.merge2 = double(4 * width, 2 * width)
        self.up1 = nn.Sequential(
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), nn.Conv2d(2 * width, width, 1)
        )
        self.merge1 = double(2 * width, width)
        self.head = nn.Conv2d(width, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images to per-pixel logits."""
        one = self.down1(x)
        two = self.down2(functional.max_pool2d(one, 2))
        three = self.down3(functional.max_pool2d(two, 2))
        y = self.middle(functional.avg_pool2d(three, 2))
        y = self.merge3(torch.cat([self.up3(y), three], 1))
        y = self.merge2(torch.cat([self.up2(y), two], 1))
        y = self.merge1(torch.cat([self.up1(y), one], 1))
        return self.head(y)


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
