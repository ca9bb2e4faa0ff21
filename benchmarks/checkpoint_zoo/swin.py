"""Swin of two stages for images of 112 x 112: attention in windows, and widths that change."""

import torch
from torch import nn
from transformers import SwinConfig, SwinForImageClassification


def model() -> nn.Module:
    """Two blocks of width 96 and two of width 192."""
    sizes = {"image_size": 112, "embed_dim": 96, "depths": [2, 2], "num_heads": [3, 6], "num_labels": 100}
    return SwinForImageClassification(SwinConfig(**sizes))


def batch(batch_size: int, seq_len: int | None = None) -> dict[str, torch.Tensor]:
    """Images and labels."""
    del seq_len
    return {"pixel_values": torch.randn(batch_size, 3, 112, 112), "labels": torch.randint(100, (batch_size,))}
