"""Transformer Engine's ``DotProductAttention``: which way it goes, and what cuDNN's and flash attention keep."""

import os
from functools import cache
from typing import Any

import torch
import torch.distributed

from published.megatron.engine.gemm import HOPPER
from published.megatron.engine.ring import ring
from published.megatron.engine.unfused import Unfused


class _Fused(torch.autograd.Function):
    """backends.py ``FusedAttnFunc``: queries, keys, values, result; sums of exponentials; the generator's state.

    One gradient holds those of queries, keys and values where these are one tensor (csrc/extensions/attention.cpp).
    cuDNN's own work space: none forward; backward, as its frontend says, queries' gradient and a row sum in fp32.
    """

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        length, batch, heads, _ = query.shape
        made = query.new_empty(query.shape)
        state = torch.empty(2, dtype=torch.int64, device="cuda")
        sums = torch.empty(batch, heads, length, 1, dtype=torch.float32, device="cuda")
        ctx.save_for_backward(query, key, value, made, sums, state)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        query, key, value, _, sums, _ = ctx.saved_tensors
        gradient = gradient.contiguous()
        if packed(query, key, value):
            whole = query.new_empty((*query.shape[:-1], 3, query.shape[-1]))
            made: Any = whole.unbind(-2)
        else:
            made = tuple(part.new_empty(part.shape) for part in (query, key, value))
        work = (query.new_empty(query.shape, dtype=torch.float32), torch.empty_like(sums))
        del work, gradient
        return made


class _Flash(torch.autograd.Function):
    """flash-attn 2 ``FlashAttnFunc``, deterministic (csrc/flash_attn/flash_api.cpp): ``[b, s, h, d]``."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        batch, length, heads, _ = query.shape
        made = query.new_empty(query.shape)
        sums = torch.empty(batch, heads, length, dtype=torch.float32, device="cuda")
        state = torch.empty(2, dtype=torch.int64, device="cuda")
        ctx.save_for_backward(query, key, value, made, sums, state)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        query, key, value, *_ = ctx.saved_tensors
        batch, length, heads, width = query.shape
        gradient = gradient.contiguous()
        made = [part.new_empty(part.shape) for part in (query, key, value)]
        sums = torch.empty(batch, heads, length, dtype=torch.float32, device="cuda")
        processors = torch.cuda.get_device_properties(0).multi_processor_count
        splits = -(-processors // (batch * heads))
        parts = torch.zeros(splits, batch, length, heads, width, dtype=torch.float32, device="cuda")
        grouped = key.shape[2] != heads
        expanded = [query.new_empty(query.shape) for _ in range(2 if grouped else 0)]
        del gradient, sums, parts, expanded
        return tuple(made)


def packed(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    """utils.py ``get_qkv_layout``: are they interleaved in one tensor?"""
    parts = (query, key, value)
    storages = {part.untyped_storage()._cdata for part in parts}  # noqa: SLF001
    return len(storages) == 1 and len({(part.shape, part.stride()) for part in parts}) == 1


def _runs_on_cudnn(dropout: float) -> bool:
    """utils.py and common/fused_attn/fused_attn.cpp ``nvte_get_fused_attn_backend``: which cards repeat their results.

    Flash attention is preferred before Hopper whether or not they must.
    """
    major = torch.cuda.get_device_capability()[0]
    repeated = os.environ["NVTE_ALLOW_NONDETERMINISTIC_ALGO"] == "0"
    return major >= HOPPER and not (major > HOPPER and repeated and dropout > 0)


@cache
def _ends(batch: int, length: int) -> torch.Tensor:
    """utils.py ``get_full_cu_seqlens``, kept for good."""
    return torch.arange(0, (batch + 1) * length, length, dtype=torch.int32, device="cuda")


class DotProductAttention(torch.nn.Module):
    """attention/dot_product_attention/dot_product_attention.py."""

    def __init__(self, *, attention_dropout: float, cp_group: Any = None, **_: Any) -> None:
        super().__init__()
        self.unfused = Unfused(attention_dropout)
        self.fused = _runs_on_cudnn(attention_dropout)
        self.ranks = torch.distributed.get_world_size(cp_group) if cp_group is not None else 1

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, *, attn_mask_type: str
    ) -> torch.Tensor:
        """utils.py ``get_attention_backend``: from Hopper on cuDNN's comes first."""
        parts = (query, key, value)
        if not packed(*parts) and any(not part.is_contiguous() for part in parts):
            parts = (query.contiguous(), key.contiguous(), value.contiguous())
        length, batch = query.shape[:2]
        _ends(batch, length), _ends(batch, key.shape[0])
        if os.environ["NVTE_FUSED_ATTN"] == "1" and self.fused:
            made: torch.Tensor = _Fused.apply(*parts)  # type: ignore[no-untyped-call]
            return made.view(length, batch, -1)
        if os.environ["NVTE_FLASH_ATTN"] == "1":
            # backends.py ``FlashAttention``.
            turned = [part.transpose(0, 1).contiguous() for part in parts]
            made = ring(self.ranks, *turned) if self.ranks > 1 else _Flash.apply(*turned)  # type: ignore[no-untyped-call]
            return made.view(batch, length, -1).transpose(0, 1).contiguous()
        result: torch.Tensor = self.unfused(*parts, mask, attn_mask_type)
        return result
