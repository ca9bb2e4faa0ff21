"""GPT-2, 124 million parameters, with dropout as published."""

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel


def model() -> nn.Module:
    """Twelve layers of width 768."""
    return GPT2LMHeadModel(GPT2Config())


def batch(batch_size: int, seq_len: int | None = None) -> dict[str, torch.Tensor]:
    """Tokens, which are also the labels."""
    tokens = torch.randint(50257, (batch_size, seq_len or 128))
    return {"input_ids": tokens, "labels": tokens}
