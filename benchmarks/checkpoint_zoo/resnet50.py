"""ResNet-50 (version 1.5: the stride is in the 3 x 3 convolution)."""

import torch
from torch import nn
from torch.nn import functional

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Inner width and blocks."""


class Bottleneck(nn.Module):
    """Three convolutions with batch norm, and a shortcut."""

    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * inner
        self.conv1, self.norm1 = nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2, self.norm2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv3, self.norm3 = nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images to images."""
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        y += self.shortcut(x)
        return self.relu(y)


def model() -> nn.Module:
    """Sixteen blocks between a stem and a classifier."""
    blocks, inputs = nn.ModuleList(), 64
    for stage, (inner, count) in enumerate(STAGES):
        for index in range(count):
            blocks.append(Bottleneck(inputs, inner, 2 if stage and not index else 1))
            inputs = 4 * inner
    stem = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
    )
    return ResNet(stem, blocks, nn.Linear(inputs, 1000))


class ResNet(nn.Module):
    """Stem, blocks, classifier."""

    def __init__(self, stem: nn.Module, blocks: nn.ModuleList, classifier: nn.Module) -> None:
        super().__init__()
        self.stem, self.blocks, self.classifier = stem, blocks, classifier

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images to logits."""
        y = self.stem(images)
        for block in self.blocks:
            y = block(y)
        return self.classifier(functional.adaptive_avg_pool2d(y, 1).flatten(1))


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels."""
    del seq_len
    return torch.randn(batch_size, 3, 128, 128), torch.randint(1000, (batch_size,))


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Cross entropy."""
    return functional.cross_entropy(output, batch[1])
