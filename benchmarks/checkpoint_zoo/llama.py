"""Llama-3.2-1B with four of its sixteen layers; 8,192 words instead of 128,256, so that it runs in 3 GiB."""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

WORDS = 8192


def model() -> nn.Module:
    """Layers as published."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=WORDS,
            hidden_size=2048,
            intermediate_size=8192,
            num_hidden_layers=4,
            num_attention_heads=32,
            num_key_value_heads=8,
            head_dim=64,
            tie_word_embeddings=True,
        )
    )


def batch(batch_size: int, seq_len: int | None = None) -> dict[str, torch.Tensor]:
    """Tokens, which are also the labels."""
    tokens = torch.randint(WORDS, (batch_size, seq_len or 256))
    return {"input_ids": tokens, "labels": tokens}
