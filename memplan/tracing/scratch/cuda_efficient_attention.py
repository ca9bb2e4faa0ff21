"""Scratch of memory-efficient attention (CUTLASS kernels of xFormers as PyTorch ships them), on sm80 and newer.

Follows torch 2.13's headers ATen/native/transformers/cuda/mem_eff_attention: kernel_backward.h (``workspace_size``,
``kNeedsAccumGrad*``), kernels/cutlassB.h and cutlassF.h (which kernels there are), and cuda/attention_backward.cu
(``_efficient_attention_backward``). Its kernels see (batch, sequence, heads, head size). A fp32 backward of torch 2.1
on a real GPU took exactly these bytes, in this order. Which of two block shapes a head above 64 gets depends on shared
memory, which memplan takes from the compute capability.
"""

from collections.abc import Mapping
from typing import NamedTuple

from memplan.tracing.scratch.cuda_shapes import (
    FLOAT_BYTES,
    HALF_TYPES,
    Layout,
    allocations,
    argument,
    ceil_div,
    copy_if_strided,
    frees,
    round_up,
)
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script

# GradQTempStorage: a lock, a counter and padding before the tile.
_TILE_HEADER_BYTES = 16
# attention_backward.cu: enough thread blocks not to split the keys of short sequences; blocks that splitting aims at.
_ENOUGH_BLOCKS = 256
_SPLIT_TARGET = 200
# Above this head size no kernel keeps the output in registers.
_LARGEST_RESIDENT_HEAD = 128
# 163 and 227 KiB of shared memory per block; other capabilities have 99.
_LARGE_SHARED_MEMORY = frozenset({(8, 0), (8, 7), (9, 0), (10, 0), (10, 3), (11, 0)})
_HAS_96_KERNEL = frozenset({(8, 6), (8, 9)})


class Tile(NamedTuple):
    """Tile of one backward kernel."""

    queries: int
    keys: int
    in_registers: bool
    """Do key and value gradients stay in registers (``kOutputInRF``)? Else half types accumulate in global memory."""


def backward_block(head: int, *, half: bool, dropout: bool, capability: tuple[int, int]) -> Tile:
    """The first kernel of cutlassB.h's list that takes a head size (``kMaxK``) and fits into shared memory."""
    if head <= 64:
        return Tile(64, 64, half)
    large = capability in _LARGE_SHARED_MEMORY
    if half and head <= _LARGEST_RESIDENT_HEAD:
        if head <= 96 and capability in _HAS_96_KERNEL and not dropout:
            return Tile(128, 64, in_registers=True)
        return Tile(128, 128, in_registers=True) if large else Tile(64, 64, in_registers=False)
    return Tile(128 if large else 64, 64, in_registers=False)


def workspace_bytes(query: Layout, key: Layout, value: Layout, block: Tile) -> int:
    """``Params::workspace_size``: query gradients by tile; key and value gradients where registers do not hold them.

    Args:
        query: (batch, queries, heads, head size).
        key: (batch, keys, heads, head size).
        value: The same for values.
        block: The kernel's tile.
    """
    batch, queries, heads, head = query.shape
    tiles = ceil_div(queries, block.queries) * ceil_div(head, block.keys)
    elements = tiles * (_TILE_HEADER_BYTES + block.queries * block.keys * FLOAT_BYTES) // FLOAT_BYTES
    if query.dtype in HALF_TYPES and not block.in_registers:
        splits = _key_splits(key.shape[1], batch * heads, block)
        widths = round_up(head, block.queries) + round_up(value.shape[3], block.queries)
        elements += splits * block.keys * widths
    return batch * heads * round_up(elements, 4) * FLOAT_BYTES


def _key_splits(keys: int, blocks: int, block: Tile) -> int:
    splits = ceil_div(keys, block.keys)
    if blocks >= _ENOUGH_BLOCKS and keys <= 2 * block.keys:
        splits = 1
    return max(1, min(splits, _SPLIT_TARGET // blocks))


def forward(call: Call) -> Script | None:
    """``_scaled_dot_product_efficient_attention(query, …)``: half outputs of large heads accumulate in float."""
    value = argument(call, 2, "value")
    out = call.out[0]
    if value.shape[3] <= _LARGEST_RESIDENT_HEAD or out.dtype not in HALF_TYPES:
        return None
    return Script(after=(Scratch("alloc", "accumulator", out.numel() * FLOAT_BYTES),))


def backward(call: Call) -> Script | None:
    """``_scaled_dot_product_efficient_attention_backward(grad_out, query, key, value, bias, out, …, dropout_p, …)``."""
    gradient, query, key, value = (Layout.of(call.args[i]).swapped(1, 2) for i in range(4))
    dropout = bool(argument(call, 9, "dropout_p"))
    half, head = query.dtype in HALF_TYPES, max(query.shape[3], value.shape[3])
    block = backward_block(head, half=half, dropout=dropout, capability=call.device.capability)
    shared = key.shape[2]
    expanded = [0 if shared == query.shape[2] else each.nbytes // shared * query.shape[2] for each in (key, value)]
    workspace = Scratch("alloc", "workspace", workspace_bytes(query, key, value, block))
    after = (*allocations((("dk", expanded[0]), ("dv", expanded[1]))), *_row_sums(gradient, half=half), workspace)
    # The workspace outlives the row sums, although it is made after them.
    return Script(before=copy_if_strided("gradient", gradient), after=(*after, *frees("delta", "workspace")))


def _row_sums(gradient: Layout, *, half: bool) -> tuple[Scratch, ...]:
    """Sums of gradient times output; half kernels compute them, float ones get them from three ops."""
    batch, queries, heads, _ = gradient.shape
    rows = batch * queries * heads * FLOAT_BYTES
    if half:
        return (Scratch("alloc", "delta", rows),)
    # Heads and queries change places last, which copies unless one of them is single.
    return (
        Scratch("alloc", "product", gradient.numel * FLOAT_BYTES),
        Scratch("alloc", "sum", rows),
        Scratch("alloc", "delta", rows),
        *frees("sum", "product"),
    )


EFFICIENT_ATTENTION_RULES: Mapping[str, Rule] = {
    "aten._scaled_dot_product_efficient_attention.default": forward,
    "aten._scaled_dot_product_efficient_attention_backward.default": backward,
}
"""Op name → rule."""
