"""T5-small: encoder, decoder, cross attention, dropout."""

import torch
from torch import nn
from transformers import T5Config, T5ForConditionalGeneration


def model() -> nn.Module:
    """Six layers of width 512 on both sides."""
    sizes = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
    return T5ForConditionalGeneration(T5Config(vocab_size=32128, decoder_start_token_id=0, pad_token_id=0, **sizes))


def batch(batch_size: int, seq_len: int | None = None) -> dict[str, torch.Tensor]:
    """Source and target tokens, half as many."""
    length = seq_len or 256
    return {
        "input_ids": torch.randint(1, 32128, (batch_size, length)),
        "labels": torch.randint(1, 32128, (batch_size, length // 2)),
    }
