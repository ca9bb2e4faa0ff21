"""Mixtral's architecture, small: six layers, eight experts, two per token."""

import torch
from torch import nn
from transformers import MixtralConfig, MixtralForCausalLM

WORDS = 4096


def model() -> nn.Module:
    """Width 256; every expert has a feed-forward part of 896."""
    return MixtralForCausalLM(
        MixtralConfig(
            vocab_size=WORDS,
            hidden_size=256,
            intermediate_size=896,
            num_hidden_layers=6,
            num_attention_heads=8,
            num_key_value_heads=2,
            num_local_experts=8,
            num_experts_per_tok=2,
        )
    )


def batch(batch_size: int, seq_len: int | None = None) -> dict[str, torch.Tensor]:
    """Tokens, which are also the labels."""
    tokens = torch.randint(WORDS, (batch_size, seq_len or 256))
    return {"input_ids": tokens, "labels": tokens}
