"""GPT-2 from transformers, small, with its own loss (labels in the batch) and dropout."""

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel


def model() -> nn.Module:
    """Four layers of width 192."""
    return GPT2LMHeadModel(GPT2Config(vocab_size=5000, n_positions=256, n_embd=192, n_layer=4, n_head=6))


def batch(batch_size: int, seq_len: int | None = None) -> dict[str, torch.Tensor]:
    """Tokens, which are also the labels."""
    tokens = torch.randint(5000, (batch_size, seq_len or 128))
    return {"input_ids": tokens, "labels": tokens}
