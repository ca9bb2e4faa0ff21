"""Whisper, small: convolutions and an encoder over sound, a decoder that attends to it."""

import torch
from torch import nn
from transformers import WhisperConfig, WhisperForConditionalGeneration

WORDS, SOUNDS = 2048, 200


def model() -> nn.Module:
    """Two layers of width 256 on both sides."""
    sizes = {"d_model": 256, "encoder_layers": 2, "decoder_layers": 2, "max_source_positions": SOUNDS}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 1024}
    signs = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    return WhisperForConditionalGeneration(
        WhisperConfig(vocab_size=WORDS, decoder_ffn_dim=1024, **sizes, **heads, **signs)
    )


def batch(batch_size: int, seq_len: int | None = None) -> dict[str, torch.Tensor]:
    """Spectrograms, and what was said."""
    sounds = torch.randn(batch_size, 80, 2 * SOUNDS)
    return {"input_features": sounds, "labels": torch.randint(3, WORDS, (batch_size, seq_len or 64))}
