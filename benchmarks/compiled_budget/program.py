"""The programs of siddddd17/ackaudit's measured backward passes, written anew: what one step of each does.

``experiments/measured_backward/run_d.py`` at commit 29d506f8, models of ``ackaudit/hf_models.py`` at 9f10fc91. A step
is a forward, its sum, a backward, and gradients zeroed in place; nothing is optimized. ``MEMPLAN_BUDGET`` is what
torch's ``activation_memory_budget`` is set to.

Which release of transformers ran is not said. Those before it (5.10 and 5.17 were looked at, masking_utils.py
``_ignore_causal_mask_sdpa`` and ``_ignore_bidirectional_mask_sdpa``) give attention a mask wherever they are compiled;
5.23 leaves it out. With one, BERT's graph has the 11 candidates a layer that its run counted (354 at scale 8), without
one 9: the mask of BERT is expanded along its last dimension, which no fused kernel takes.
"""

import os
from collections.abc import Callable

import torch
from torch import nn
from torch._functorch import config
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel, masking_utils

VOCABULARY = 1000
config.activation_memory_budget = float(os.environ.get("MEMPLAN_BUDGET") or 1.0)


def made_where_compiled(ignores: Callable[..., bool]) -> Callable[..., bool]:
    """Whether a mask may be left out, as those releases decide."""
    return lambda *args, **kwargs: not torch.compiler.is_compiling() and ignores(*args, **kwargs)


for _name in ("_ignore_causal_mask_sdpa", "_ignore_bidirectional_mask_sdpa"):
    setattr(masking_utils, _name, made_where_compiled(getattr(masking_utils, _name)))


class Llama(nn.Module):
    """A small Llama without a head.

    Args:
        scale: Four times so many layers, 128 times so many tokens.
    """

    def __init__(self, scale: int) -> None:
        super().__init__()
        self.model = LlamaModel(
            LlamaConfig(
                hidden_size=256,
                intermediate_size=688,
                num_hidden_layers=4 * scale,
                num_attention_heads=8,
                num_key_value_heads=8,
                vocab_size=VOCABULARY,
                use_cache=False,
            )
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The sum of the last hidden state."""
        return self.model(input_ids=ids).last_hidden_state.sum()


class Bert(nn.Module):
    """A small BERT without a pooler.

    Args:
        scale: Four times so many layers, 128 times so many tokens.
    """

    def __init__(self, scale: int) -> None:
        super().__init__()
        settings = BertConfig(
            hidden_size=192,
            num_hidden_layers=4 * scale,
            num_attention_heads=3,
            intermediate_size=768,
            vocab_size=VOCABULARY,
            max_position_embeddings=max(512, 128 * scale),
        )
        self.model = BertModel(settings, add_pooling_layer=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The sum of the last hidden state."""
        return self.model(input_ids=ids).last_hidden_state.sum()


def batch(batch_size: int, seq_len: int) -> torch.Tensor:
    """Random tokens."""
    return torch.randint(VOCABULARY, (batch_size, seq_len))


def train_step(model: nn.Module, optimizer: object, ids: torch.Tensor) -> None:
    """One of the measured repetitions."""
    del optimizer
    model(ids).backward()
    model.zero_grad(set_to_none=False)
