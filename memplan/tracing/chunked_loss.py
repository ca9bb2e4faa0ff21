"""``--loss-chunks N``: the logits of a language model are never there as a whole.

The output layer and cross entropy run over N parts of the tokens, each under a checkpoint of its own: forward keeps a
part's hidden states alone, backward makes its logits again. Fused kernels (Liger's linear cross entropy) make gradients
in forward instead and take a little less; the order of magnitude is the same.
"""

from functools import partial
from typing import Any

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from memplan.errors import UsageError

IGNORED = -100
"""transformers, loss/loss_utils.py, ForCausalLMLoss: ignore_index."""


class Loss(dict[str, torch.Tensor]):
    """An output that holds nothing but ``loss``, as an item and as an attribute."""

    @property
    def loss(self) -> torch.Tensor:
        """The mean over all tokens."""
        return self["loss"]


def chunk_loss(model: Any, chunks: int) -> None:
    """Give a causal language model of transformers a forward that returns its loss alone.

    Args:
        model: A module; changed in place.
        chunks: How many parts.

    Raises:
        UsageError: It is none.
    """
    body = getattr(model, getattr(model, "base_model_prefix", "") or "none", None)
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    is_causal = type(model).__name__.endswith(("ForCausalLM", "LMHeadModel"))
    if body is None or head is None or not is_causal:
        raise UsageError(
            f"{type(model).__name__} is no causal language model of transformers",
            where="--loss-chunks",
            hint="chunk the loss in the target's own loss()",
        )
    model.forward = partial(_forward, body, head, chunks)


def _forward(body: torch.nn.Module, head: torch.nn.Module, chunks: int, *, labels: torch.Tensor, **inputs: Any) -> Loss:
    hidden: torch.Tensor = body(**inputs)[0]
    # As transformers shifts labels: the last token has none.
    targets = functional.pad(labels, (0, 1), value=IGNORED)[..., 1:].contiguous().view(-1)
    total = hidden.new_zeros((), dtype=torch.float32)
    parts = hidden.view(-1, hidden.shape[-1]).chunk(chunks)
    for part, target in zip(parts, targets.chunk(chunks), strict=True):
        total = total + checkpoint(_part, head, part, target, use_reentrant=False)
    return Loss(loss=total / (targets != IGNORED).sum())


def _part(head: torch.nn.Module, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(head(hidden).float(), targets, ignore_index=IGNORED, reduction="sum")


def described(chunks: int) -> str:
    """A sentence for the report."""
    return f"output layer and cross entropy run over {chunks} parts of the tokens, each checkpointed"
