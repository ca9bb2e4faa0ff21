"""ViT-B/16 for images of 224 x 224."""

import torch
from torch import nn
from transformers import ViTConfig, ViTForImageClassification


def model() -> nn.Module:
    """Twelve layers of width 768."""
    return ViTForImageClassification(ViTConfig(num_labels=1000))


def batch(batch_size: int, seq_len: int | None = None) -> dict[str, torch.Tensor]:
    """Images and labels."""
    del seq_len
    return {"pixel_values": torch.randn(batch_size, 3, 224, 224), "labels": torch.randint(1000, (batch_size,))}
