"""A small Mixtral from transformers: eight experts, two for each token."""

import torch
from sizes import pick
from torch import nn
from transformers import MixtralConfig, MixtralForCausalLM

VOCABULARY = pick(full=16_000, tiny=500)


def model() -> nn.Module:
    """Six layers of width 512."""
    return MixtralForCausalLM(
        MixtralConfig(
            vocab_size=VOCABULARY,
            hidden_size=pick(full=512, tiny=64),
            intermediate_size=pick(full=1024, tiny=96),
            num_hidden_layers=pick(full=6, tiny=2),
            num_attention_heads=8,
            num_key_value_heads=2,
            num_local_experts=8,
            num_experts_per_tok=2,
        )
    )


def batch(batch_size: int, seq_len: int | None = None) -> dict[str, torch.Tensor]:
    """Tokens and labels."""
    tokens = torch.randint(VOCABULARY, (batch_size, seq_len or pick(full=512, tiny=32)))
    return {"input_ids": tokens, "labels": tokens.clone()}
