"""Eight layers of width 256 in Llama's architecture: small enough to compile many times over."""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

WORDS = 2048


def model() -> nn.Module:
    """Plain multi-head attention."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=WORDS,
            hidden_size=256,
            intermediate_size=704,
            num_hidden_layers=8,
            num_attention_heads=4,
            num_key_value_heads=4,
        )
    )


def batch(batch_size: int, seq_len: int | None = None) -> dict[str, torch.Tensor]:
    """Tokens, which are also the labels."""
    tokens = torch.randint(WORDS, (batch_size, seq_len or 256))
    return {"input_ids": tokens, "labels": tokens}
