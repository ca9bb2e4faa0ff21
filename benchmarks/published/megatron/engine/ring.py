"""Transformer Engine's attention of context parallel ranks (attention/dot_product_attention/context_parallel.py)."""

from typing import Any

import torch


def ring(ranks: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """``attn_forward_func_with_cp``, whose communication is from one rank to the next."""
    made: torch.Tensor = _Ring.apply(ranks, query, key, value)  # type: ignore[no-untyped-call]
    return made


class _Ring(torch.autograd.Function):
    """``AttnFuncWithCPAndKVP2P`` by flash attention, causal, on the last rank: ``[b, s, h, d]``.

    It keeps its queries, the keys and values that came last, the result, its sums, and states of the generator.
    """

    @staticmethod
    def forward(ctx: Any, ranks: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        received = [torch.cat((key.view(-1), value.view(-1)))]
        received += [torch.empty_like(received[0]) for _ in range(ranks - 1)]
        steps = [_step(query) for _ in range(ranks)]
        total = steps[0][1].clone()
        made = torch.empty_like(query)
        ctx.save_for_backward(query, received[-1], made, total, *(state for _, _, state in steps))
        ctx.shapes = key.shape, value.shape
        return made

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        query, both, _, sums, *_ = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_query = torch.empty_like(query)
        buffers = [both.new_empty((2, *both.shape)) for _ in range(2)]
        # What flash attention makes in every step: three gradients, a row sum, and the queries' gradient in fp32.
        work = [torch.empty_like(query), torch.empty_like(both), torch.empty_like(sums)]
        work.append(query.new_empty(query.shape, dtype=torch.float32))
        del work, gradient
        of_key, of_value = buffers[0][1].split([shape.numel() for shape in ctx.shapes])
        return None, of_query, of_key.view(ctx.shapes[0]), of_value.view(ctx.shapes[1])


def _step(query: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``cp_p2p_fwd_flash_attn``: a result, its sums and the generator's state."""
    batch, length, heads, _ = query.shape
    sums = query.new_empty((batch, heads, length), dtype=torch.float32)
    return torch.empty_like(query), sums, query.new_empty(2, dtype=torch.int64)
