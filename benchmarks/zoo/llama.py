"""Llama from transformers, small, with grouped-query attention and SDPA."""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM


def model() -> nn.Module:
    """Four layers of width 192 with two key-value heads."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=4000,
            hidden_size=192,
            intermediate_size=512,
            num_hidden_layers=4,
            num_attention_heads=6,
            num_key_value_heads=2,
        )
    )


def batch(batch_size: int, seq_len: int | None = None) -> dict[str, torch.Tensor]:
    """Tokens, which are also the labels."""
    tokens = torch.randint(4000, (batch_size, seq_len or 128))
    return {"input_ids": tokens, "labels": tokens}
