"""A Llama of 0.2 B parameters from transformers: grouped queries, RMS norm, SwiGLU, rotary positions, SDPA."""

import torch
from sizes import pick
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = pick(full=32_000, tiny=500)


def model() -> nn.Module:
    """Twelve layers of width 1024."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=pick(full=1024, tiny=64),
            intermediate_size=pick(full=2816, tiny=160),
            num_hidden_layers=pick(full=12, tiny=2),
            num_attention_heads=pick(full=16, tiny=4),
            num_key_value_heads=pick(full=4, tiny=2),
            max_position_embeddings=4096,
        )
    )


def batch(batch_size: int, seq_len: int | None = None) -> dict[str, torch.Tensor]:
    """Tokens and, apart from them, labels."""
    tokens = torch.randint(VOCABULARY, (batch_size, seq_len or pick(full=1024, tiny=32)))
    return {"input_ids": tokens, "labels": tokens.clone()}
