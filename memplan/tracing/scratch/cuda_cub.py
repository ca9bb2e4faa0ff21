"""Temporary storage of the CUB algorithms that PyTorch's kernels call.

Follows CUB's dispatch_radix_sort.cuh, dispatch_scan.cuh, single_pass_scan_operators.cuh and util_type.cuh, and
PyTorch's ATen/cuda/cub.cuh. The radix sort of 8-byte keys and values was held against real traces: 4096 keys take
72,191 bytes (torch 2.11), 8192 keys on another machine exactly the 138,751 that then follow, 512 to 2048 keys 1 byte.
"""

from memplan.tracing.scratch.cuda_shapes import ceil_div, round_up
from memplan.tracing.scratch.rules import Scratch

# Onesweep policy of sm80 and newer: threads, and items per thread of 4 bytes; fewer for 4-byte keys with values, where
# offsets take 64 bits.
_THREADS = 384
_ITEMS, _ITEMS_OF_FLOAT_PAIRS = 21, 17
# SingleTilePolicy: one block sorts this much at once.
_SINGLE_THREADS, _SINGLE_ITEMS = 256, 19
_NOMINAL_BYTES = 4
_RADIX_BITS = 8
_DIGITS = 1 << _RADIX_BITS
_OFFSET_BYTES = 8
_LOOKBACK_BYTES = _COUNTER_BYTES = 4
# AliasTemporaries aligns every part and the whole to 256 bytes.
_ALIGNMENT = 256
# Scans and selections keep one state per tile, and a warp's worth more. Tiles are tuned by architecture and operator;
# 128 threads of 15 4-byte items are the default of sm60 and newer: a state for some two thousand elements.
_TILE_THREADS, _TILE_ITEMS = 128, 15
_TILE_PADDING = 32


def radix_sort_pairs_bytes(items: int, key_bits: int, *, key_bytes: int = 8, value_bytes: int = 8) -> int:
    """Temporary storage of ``cub::DeviceRadixSort::SortPairs``.

    Args:
        items: Pairs to sort.
        key_bits: Bits of the largest key.
        key_bytes: Bytes of a key.
        value_bytes: Bytes of a value; 0 for ``SortKeys``.

    Returns:
        Bytes that CUB asks for.
    """
    widest = max(key_bytes, value_bytes)
    if items <= _SINGLE_THREADS * _per_thread(_SINGLE_ITEMS, widest):
        return 1
    passes = ceil_div(key_bits, _RADIX_BITS)
    nominal = _ITEMS_OF_FLOAT_PAIRS if key_bytes == _NOMINAL_BYTES and value_bytes else _ITEMS
    tile = _THREADS * _per_thread(nominal, widest)
    parts = [
        passes * _DIGITS * _OFFSET_BYTES,
        ceil_div(items, tile) * _DIGITS * _LOOKBACK_BYTES,
        passes * _COUNTER_BYTES,
    ]
    if passes > 1:
        parts += [items * key_bytes, items * value_bytes]
    return _aligned(*parts)


def segmented_sort_pairs_bytes(items: int, *, key_bytes: int, value_bytes: int) -> int:
    """Temporary storage of ``cub::DeviceSegmentedRadixSort::SortPairs``: a second copy of keys and values."""
    return _aligned(items * key_bytes, items * value_bytes)


def tile_states(key: str, items: int, value_bytes: int) -> Scratch:
    """Temporary storage of a scan or selection (``cub::DeviceScan``, ``DeviceSelect``): one state per tile.

    Args:
        key: Names the allocation.
        items: Elements.
        value_bytes: Bytes of what is summed up.
    """
    # A state and its value move in one transaction.
    word = max(8, 2 * value_bytes)
    tiles = ceil_div(items, _TILE_THREADS * _per_thread(_TILE_ITEMS, value_bytes))
    return Scratch("alloc", key, _aligned((tiles + _TILE_PADDING) * word))


def key_bits(largest: int) -> int:
    """``cub::get_num_bits`` (ATen/cuda/cub.h): bits to sort keys up to this one."""
    return max(1, largest.bit_length())


def _per_thread(nominal: int, item_bytes: int) -> int:
    """``Nominal4BItemsToItems``."""
    return min(nominal, max(1, nominal * _NOMINAL_BYTES // item_bytes))


def _aligned(*parts: int) -> int:
    return _ALIGNMENT - 1 + sum(round_up(part, _ALIGNMENT) for part in parts)
