"""A small Llama of transformers, whose names tensor parallelism and adapters know."""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

WORDS = 4096


def model() -> nn.Module:
    """The model."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=WORDS,
            hidden_size=256,
            intermediate_size=512,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
    )


def batch(batch_size: int, seq_len: int = 256) -> dict[str, torch.Tensor]:
    """Words, which are their own labels."""
    words = torch.randint(WORDS, (batch_size, seq_len))
    return {"input_ids": words, "labels": words}
