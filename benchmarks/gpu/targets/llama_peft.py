"""The same Llama with low-rank adapters of peft on every projection of attention."""

from llama import batch
from llama import model as base
from torch import nn

__all__ = ["batch", "model"]


def model() -> nn.Module:
    """Base weights frozen, adapters of rank 16."""
    from peft import LoraConfig, get_peft_model

    configuration = LoraConfig(
        r=16, lora_alpha=32, lora_dropout=0.05, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]
    )
    adapted: nn.Module = get_peft_model(base(), configuration)
    return adapted
