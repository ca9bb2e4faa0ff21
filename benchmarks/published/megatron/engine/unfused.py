"""Transformer Engine's attention of single products (attention/dot_product_attention/backends.py ``Unfused…``).

All but the softmax are torch's own operations, so they run here as they do there.
"""

from typing import Any

import torch


class _Softmax(torch.autograd.Function):
    """attention/dot_product_attention/softmax.py ``ScaledMaskedSoftmax``: it keeps its result.

    Backward writes over the gradient (csrc/extensions/softmax.cpp).
    """

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor) -> torch.Tensor:
        made = torch.empty_like(scores)
        ctx.save_for_backward(made)
        return made

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.contiguous()


def full_mask(queries: int, keys: int, given: Any, *, causal: bool, padding: bool) -> torch.Tensor:
    """attention/dot_product_attention/utils.py ``get_full_mask``: built anew in every layer."""
    if padding:
        of_queries, of_keys = given if isinstance(given, tuple) else (given, given)
        given = torch.logical_or(of_queries.squeeze(1).unsqueeze(3), of_keys)
    left = torch.arange(queries, dtype=torch.int32, device="cuda").view(1, 1, queries, 1)
    distance = left - torch.arange(keys, dtype=torch.int32, device="cuda").view(1, 1, 1, keys)
    if padding and not causal:
        # Aligned to the ends of every sequence: one window for each.
        batch = given.shape[0]
        lengths = given.logical_not()[:, 0, 0, :].sum(dim=1).view(batch, 1, 1, 1)
        distance = distance.expand(batch, 1, queries, keys)
        lower, upper = distance + (lengths - keys), distance + (lengths + queries)
    else:
        lower, upper = distance - keys, distance + (0 if causal else queries)
    outside = torch.logical_not((lower <= 0) & ~(upper < 0))
    return outside if given is None else torch.logical_or(outside, given)


class Unfused(torch.nn.Module):
    """``UnfusedDotProductAttention``, for sequences of multiples of four; its only state is the dropout."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, given: Any, kind: str) -> Any:
        """``[s, b, h, d]`` to ``[s, b, h * d]``."""
        length, batch, heads, _ = query.shape
        keys = key.shape[0]
        padding = "padding" in kind
        mask = full_mask(length, keys, given, causal="causal" in kind, padding=padding)
        scores = torch.empty(batch * heads, length, keys, dtype=query.dtype, device="cuda")
        query, key = (part.reshape(part.shape[0], batch * heads, -1).transpose(0, 1) for part in (query, key))
        scores = torch.baddbmm(scores, query, key.transpose(1, 2), beta=0.0).view(batch, heads, length, keys)
        shares: torch.Tensor = _Softmax.apply(scores)  # type: ignore[no-untyped-call]
        if padding:
            shares = shares.masked_fill(mask, 0)
        shares = self.dropout(shares).view(batch * heads, length, keys)
        made = torch.bmm(shares, value.reshape(keys, batch * heads, -1).transpose(0, 1))
        return made.view(batch, heads, length, -1).permute(2, 0, 1, 3).contiguous().view(length, batch, -1)
