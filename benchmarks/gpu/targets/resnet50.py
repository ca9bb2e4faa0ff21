"""ResNet-50 (He et al. 2015, with the stride in the 3x3 convolution), trained by SGD with momentum."""

from collections.abc import Iterable

import torch
from sizes import pick
from torch import nn
from torch.nn import functional

SIDE = pick(full=224, tiny=64)
STAGES = pick(full=((3, 64), (4, 128), (6, 256), (3, 512)), tiny=((1, 16), (1, 32), (1, 64), (1, 128)))


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 and a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images to images."""
        y = self.body(x)
        y += self.shortcut(x)
        return self.relu(y)


def network() -> nn.Module:
    """Stem, four stages, head."""
    width = STAGES[0][1]
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    for stage, (blocks, inner) in enumerate(STAGES):
        for index in range(blocks):
            layers.append(Bottleneck(width, inner, 2 if stage and not index else 1))
            width = 4 * inner
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))


def model() -> nn.Module:
    """In the default layout."""
    return network()


def batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels."""
    return torch.randn(batch_size, 3, SIDE, SIDE), torch.randint(1000, (batch_size,))


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Cross entropy."""
    return functional.cross_entropy(output, batch[1])


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """As in the paper."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)
