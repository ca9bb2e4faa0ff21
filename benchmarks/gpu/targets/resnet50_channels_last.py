"""ResNet-50 with weights and images in the channels-last layout."""

import torch
from resnet50 import batch as images
from resnet50 import loss, network, optimizer
from torch import nn

__all__ = ["batch", "loss", "model", "optimizer"]


def model() -> nn.Module:
    """In the channels-last layout."""
    return network().to(memory_format=torch.channels_last)


def batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images in that layout, and labels."""
    pictures, labels = images(batch_size)
    return pictures.to(memory_format=torch.channels_last), labels
