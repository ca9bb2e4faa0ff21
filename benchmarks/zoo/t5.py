"""T5 from transformers, small: encoder, decoder, cross attention, relative position biases."""

import torch
from torch import nn
from transformers import T5Config, T5ForConditionalGeneration


def model() -> nn.Module:
    """Three layers of width 128 on both sides."""
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=4000,
            d_model=128,
            d_kv=32,
            d_ff=512,
            num_layers=3,
            num_heads=4,
            decoder_start_token_id=0,
            pad_token_id=0,
        )
    )


def batch(batch_size: int, seq_len: int | None = None) -> dict[str, torch.Tensor]:
    """Source and target tokens."""
    length = seq_len or 96
    return {
        "input_ids": torch.randint(1, 4000, (batch_size, length)),
        "labels": torch.randint(1, 4000, (batch_size, length // 2)),
    }
