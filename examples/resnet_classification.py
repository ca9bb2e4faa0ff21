"""Image classification with ResNet-50 (25.6 million parameters) and SGD with momentum.

Try it with

    memplan estimate examples/resnet_classification.py --gpu t4 --batch-size 64
"""

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional

CLASSES = 1000
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Width, blocks and stride of each stage."""


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    padding = size // 2
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, padding, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Bottleneck(nn.Module):
    """A narrow 3x3 convolution between two of 1x1, beside a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.reduce = convolution(inputs, width, 1)
        self.spatial = convolution(width, width, 3, stride)
        self.expand = convolution(width, outputs, 1)
        self.shortcut = nn.Identity() if inputs == outputs else convolution(inputs, outputs, 1, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.reduce(x))
        y = self.relu(self.spatial(y))
        return self.relu(self.expand(y) + self.shortcut(x))


def model() -> nn.Module:
    layers = [convolution(3, 64, 7, stride=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1)]
    inputs = 64
    for width, blocks, stride in STAGES:
        for index in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if index == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))


def batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels; the model takes one argument, so it is called on the images alone."""
    return torch.randn(batch_size, 3, 224, 224), torch.randint(CLASSES, (batch_size,))


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    _, labels = batch
    return functional.cross_entropy(output, labels)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)
