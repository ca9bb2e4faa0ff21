"""BERT from transformers, small, masked language modelling with an attention mask, eager attention."""

import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM


def model() -> nn.Module:
    """Four layers of width 192."""
    config = BertConfig(
        vocab_size=5000, hidden_size=192, num_hidden_layers=4, num_attention_heads=6, intermediate_size=768
    )
    config._attn_implementation = "eager"  # noqa: SLF001 - the documented switch of transformers
    return BertForMaskedLM(config)


def batch(batch_size: int, seq_len: int | None = None) -> dict[str, torch.Tensor]:
    """Tokens, mask and labels."""
    tokens = torch.randint(5000, (batch_size, seq_len or 128))
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}
