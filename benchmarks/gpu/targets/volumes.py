"""A 3-D segmentation network: convolutions over volumes, instance norm, transposed convolutions."""

import torch
from sizes import pick
from torch import nn
from torch.nn import functional

WIDTH, SIDE = pick(full=32, tiny=8), pick(full=64, tiny=16)


def double(inputs: int, outputs: int) -> nn.Sequential:
    """Two normalised convolutions."""
    return nn.Sequential(
        nn.Conv3d(inputs, outputs, 3, padding=1),
        nn.InstanceNorm3d(outputs, affine=True),
        nn.LeakyReLU(0.01, inplace=True),
        nn.Conv3d(outputs, outputs, 3, padding=1),
        nn.InstanceNorm3d(outputs, affine=True),
        nn.LeakyReLU(0.01, inplace=True),
    )


class Network(nn.Module):
    """Two levels down and up."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = double(1, WIDTH), double(WIDTH, 2 * WIDTH), double(2 * WIDTH, 4 * WIDTH)
        self.up2, self.merge2 = nn.ConvTranspose3d(4 * WIDTH, 2 * WIDTH, 2, 2), double(4 * WIDTH, 2 * WIDTH)
        self.up1, self.merge1 = nn.ConvTranspose3d(2 * WIDTH, WIDTH, 2, 2), double(2 * WIDTH, WIDTH)
        self.head = nn.Conv3d(WIDTH, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Volumes to per-voxel logits."""
        one = self.down1(x)
        two = self.down2(functional.max_pool3d(one, 2))
        y = self.middle(functional.max_pool3d(two, 2))
        y = self.merge2(torch.cat([self.up2(y), two], 1))
        return self.head(self.merge1(torch.cat([self.up1(y), one], 1)))


def model() -> nn.Module:
    """The network."""
    return Network()


def batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Volumes and labels."""
    return torch.randn(batch_size, 1, SIDE, SIDE, SIDE), torch.randint(4, (batch_size, SIDE, SIDE, SIDE))


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Per-voxel cross entropy."""
    return functional.cross_entropy(output, batch[1])
