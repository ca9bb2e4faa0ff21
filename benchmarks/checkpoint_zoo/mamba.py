"""Mamba of two layers, in transformers' plain PyTorch."""

import torch
from torch import nn
from transformers import MambaConfig, MambaForCausalLM

WORDS = 2048


def model() -> nn.Module:
    """Width 256, state 8."""
    sizes = {"hidden_size": 256, "state_size": 8, "num_hidden_layers": 2}
    return MambaForCausalLM(MambaConfig(vocab_size=WORDS, use_cache=False, **sizes))


def batch(batch_size: int, seq_len: int | None = None) -> dict[str, torch.Tensor]:
    """Tokens, which are also the labels."""
    tokens = torch.randint(WORDS, (batch_size, seq_len or 24))
    return {"input_ids": tokens, "labels": tokens}
