"""The perceptron under ``torch.compile``."""

import torch
from mlp import batch, loss, network
from torch import nn

__all__ = ["batch", "loss", "model"]


def model() -> nn.Module:
    """Compiled."""
    compiled: nn.Module = torch.compile(network())  # type: ignore[assignment]
    return compiled
