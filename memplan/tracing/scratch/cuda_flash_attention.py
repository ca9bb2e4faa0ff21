"""Scratch of FlashAttention-2 as PyTorch ships it.

Follows aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp (``mha_fwd``, ``set_params_splitkv``,
``mha_bwd``, ``mha_varlen_bwd``) and cuda/attention_backward.cu. The kernels see (batch, sequence, heads, size); the
scaled_dot_product ops get (batch, heads, sequence, head size) and transpose.
"""

import math
from collections.abc import Mapping, Sequence

import torch

from memplan.tracing.records import DeviceTraits
from memplan.tracing.scratch.cuda_shapes import (
    FLOAT_BYTES,
    Layout,
    allocations,
    argument,
    ceil_div,
    copy_if_strided,
    round_up,
)
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script

# flash_api.cpp: sequences are padded to 128 in backward; splits work on query blocks of 64.
_QUERY_PADDING = 128
_QUERY_BLOCK = 64
_MOST_SPLITS = 128
_ENOUGH_OCCUPANCY = 0.8
_GOOD_EFFICIENCY = 0.85


def _padded_head(size: int) -> int:
    return round_up(size, 32 if size <= 128 else 64)


def _key_block(head_size: int) -> int:
    if head_size <= 64:
        return 256
    return 128 if head_size <= 128 else 64


def split_count(blocks: int, processors: int, key_blocks: int) -> int:
    """``num_splits_heuristic``: into how many parts the keys are split to fill the device.

    Args:
        blocks: Thread blocks without a split.
        processors: Blocks that run at once.
        key_blocks: Blocks of keys.
    """
    if blocks >= _ENOUGH_OCCUPANCY * processors:
        return 1
    most = min(_MOST_SPLITS, processors, key_blocks)
    eligible = [n for n in range(1, most + 1) if n == 1 or ceil_div(key_blocks, n) != ceil_div(key_blocks, n - 1)]
    waves = {n: blocks * n / processors for n in eligible}
    efficiency = {n: wave / math.ceil(wave) for n, wave in waves.items()}
    best = max(efficiency.values(), default=0.0)
    return next((n for n in eligible if efficiency[n] >= _GOOD_EFFICIENCY * best), 1)


def _split_accumulators(sizes: Sequence[int], keys: int, kv_heads: int, device: DeviceTraits) -> tuple[Scratch, ...]:
    batch, queries, heads, head = sizes
    if queries == 1 and heads > kv_heads:
        # A single query's groups of heads become its sequence.
        queries, heads = heads // kv_heads, kv_heads
    blocks = batch * heads * ceil_div(queries, _QUERY_BLOCK)
    splits = split_count(blocks, 2 * device.sm_count, ceil_div(keys, _key_block(head)))
    if splits <= 1:
        return ()
    rows = splits * batch * heads * queries * FLOAT_BYTES
    return allocations((("lse", rows), ("out", rows * _padded_head(head))))


def scaled_forward(call: Call) -> Script | None:
    """``_scaled_dot_product_flash_attention(query, key, value, dropout_p, …)``: partial results of split keys."""
    query, key = call.args[0], call.args[1]
    if argument(call, 3, "dropout_p", default=0.0):
        return None
    batch, heads, queries, head = query.shape
    after = _split_accumulators((batch, queries, heads, head), key.shape[2], key.shape[1], call.device)
    return Script(after=after) if after else None


def plain_forward(call: Call) -> Script | None:
    """``_flash_attention_forward(query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, …)``."""
    query, key = call.args[0], call.args[1]
    if call.args[3] is not None or argument(call, 7, "dropout_p"):
        return None
    after = _split_accumulators(tuple(query.shape), key.shape[1], key.shape[2], call.device)
    return Script(after=after) if after else None


def scaled_backward(call: Call) -> Script | None:
    """``_scaled_dot_product_flash_attention_backward(grad_out, query, key, value, out, logsumexp, …)``."""
    gradient, query, key, out = (Layout.of(call.args[i]).swapped(1, 2) for i in (0, 1, 2, 4))
    return _dense_backward(call.device, gradient, query, key, out)


def plain_backward(call: Call) -> Script | None:
    """``_flash_attention_backward(grad_out, query, key, value, out, logsumexp, cum_seq_q, …)``."""
    gradient, query, key, out = (Layout.of(call.args[i]) for i in (0, 1, 2, 4))
    cumulative = call.args[6]
    if cumulative is None:
        return _dense_backward(call.device, gradient, query, key, out)
    rows = (query.shape[0] + _QUERY_PADDING * (cumulative.numel() - 1)) * query.shape[1]
    splits = _deterministic_splits(call.device, (cumulative.numel() - 1) * query.shape[1])
    return Script(before=_copies(gradient, out), after=_accumulators(rows, splits, query, key))


def _dense_backward(device: DeviceTraits, gradient: Layout, query: Layout, key: Layout, out: Layout) -> Script:
    batch, queries, heads, _ = query.shape
    rows = batch * round_up(queries, _QUERY_PADDING) * heads
    splits = _deterministic_splits(device, batch * heads)
    return Script(before=_copies(gradient, out), after=_accumulators(rows, splits, query, key))


def _copies(gradient: Layout, out: Layout) -> tuple[Scratch, ...]:
    return (*copy_if_strided("gradient", gradient), *copy_if_strided("out", out))


def _deterministic_splits(device: DeviceTraits, blocks: int) -> int:
    if torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled():
        return ceil_div(device.sm_count, blocks)
    return 1


def _accumulators(rows: int, splits: int, query: Layout, key: Layout) -> tuple[Scratch, ...]:
    """Row sums and query gradients in float; key and value gradients for every query head, where heads share keys."""
    heads, head = query.shape[-2:]
    shared = key.shape[-2]
    expanded = 0 if shared == heads else key.nbytes // shared * heads
    accumulator = splits * rows * _padded_head(head) * FLOAT_BYTES
    return allocations(
        (("softmax_d", rows * FLOAT_BYTES), ("dq_accum", accumulator), ("dk", expanded), ("dv", expanded))
    )


FLASH_ATTENTION_RULES: Mapping[str, Rule] = {
    "aten._scaled_dot_product_flash_attention.default": scaled_forward,
    "aten._scaled_dot_product_flash_attention_backward.default": scaled_backward,
    "aten._flash_attention_forward.default": plain_forward,
    "aten._flash_attention_backward.default": plain_backward,
}
"""Op name → rule."""
